"""One module = one runtime that can execute an artifact on a device (DESIGN section 2)."""
