"""Energy-based models over label sets and rankings, learned together with their normalizer.

Nouns live in modules (`partita.structures.Hypercube`), verbs are flat (`partita.fit`). Modules load on first use; the
list of them is `__init__.pyi`.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
