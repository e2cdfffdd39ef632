"""What a model family is, as data: names both ways, row orders, config keys. Families are in ``architectures/``."""
