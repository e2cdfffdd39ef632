"""Can anything in this file execute code? Rules by format, one file each; imports levels 0 and 1 only."""
