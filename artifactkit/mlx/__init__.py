"""What MLX calls quantised: matrices in groups of a row, each with a scale, as mlx itself computes and reads them."""

from .groups import FLOATS, Dequantized, dequantized, quantized
from .modes import MODES, Grouping, Mode, library, parse

__all__ = ["FLOATS", "MODES", "Dequantized", "Grouping", "Mode", "dequantized", "library", "parse", "quantized"]
