"""Calling codes, and how long national numbers behind them are."""

from __future__ import annotations

# Shortest and longest national number in use, and the calling codes that have them. From the
# metadata of libphonenumber 9.0.43 (Apache-2.0): fixed, mobile, personal and VoIP numbers.
_LENGTHS = {
    (6, 6): "298 299 672 681 687",
    (6, 7): "597 676 677 678 683 688 690",
    (6, 9): "252 27 359 376 40 421 508 686",
    (6, 10): "358 53 63 685 880 95 98",
    (6, 12): "39 352 82",
    (6, 13): "43 49",
    (7, 8): "230 238 239 241 246 248 267 269 291 297 372 501 507 592 599 670 673 674 675 679 "
    "680 691 692 960 961 975",
    (7, 9): "220 231 245 254 265 354 423 46 48 595 967",
    (7, 10): "243 353",
    (7, 12): "381 62 86 882",
    (8, 8): "216 222 223 226 227 228 232 235 236 253 257 266 268 350 356 357 370 371 373 374 "
    "382 386 389 45 47 502 503 504 505 506 509 591 598 65 689 852 853 965 968 973 974 993",
    (8, 9): "213 224 250 258 264 32 355 36 377 385 387 51 593 66 855 962 963 970 971",
    (8, 10): "20 378 57 60 64 850 856 964 976 977",
    (8, 12): "383 883 886 972",
    (9, 9): "211 212 218 221 233 237 240 242 244 249 251 255 256 260 261 262 33 34 351 375 380 "
    "41 420 56 590 594 596 61 93 94 966 992 994 995 996 998",
    (9, 10): "263 44 81 84 881 92",
    (9, 11): "31",
    (9, 12): "870",
    (10, 10): "1 225 229 234 30 52 58 7 90 91",
    (10, 11): "54 55",
}
_BY_CODE = {code: bounds for bounds, codes in _LENGTHS.items() for code in codes.split()}


def calling_code(digits: str) -> tuple[str, int, int] | None:
    """The code that international digits start with, and the least and most digits behind it."""
    for size in (1, 2, 3):
        bounds = _BY_CODE.get(digits[:size])
        if bounds is not None:
            return digits[:size], *bounds
    return None
