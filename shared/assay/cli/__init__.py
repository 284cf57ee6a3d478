"""The `assay` command. Other distributions add subcommands under the entry-point group
`assay.commands`, so that this one never imports them."""
