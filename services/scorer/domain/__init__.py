"""What a call to a model is, how it can fail, and when its endpoint counts as away; pure."""
