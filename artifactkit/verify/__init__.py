"""The judge of two things put before it: accounting, values, function (DESIGN section 6)."""
