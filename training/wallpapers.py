"""Training photographs from Debian's wallpaper packages: used by the training script only, shipped nowhere.

`apt-get download mate-backgrounds lomiri-wallpapers-16.04 lomiri-wallpapers-20.04` and `dpkg -x` (or an ordinary
installation) put them under `usr/share/backgrounds`. Licences are those of the packages' `copyright` files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

WALLPAPERS: dict[str, str] = {
    "mate/nature/Aqua.jpg": "GPL-2+",
    "mate/nature/Blinds.jpg": "GPL-2+",
    "mate/nature/Dune.jpg": "GPL-2+",
    "mate/nature/FreshFlower.jpg": "GPL-2+",
    "mate/nature/Garden.jpg": "GPL-2+",
    "mate/nature/GreenMeadow.jpg": "GPL-2+",
    "mate/nature/LadyBird.jpg": "GPL-2+",
    "mate/nature/RainDrops.jpg": "GPL-2+",
    "mate/nature/Storm.jpg": "GPL-2+",
    "mate/nature/TwoWings.jpg": "GPL-2+",
    "mate/nature/Wood.jpg": "GPL-2+",
    "mate/nature/YellowFlower.jpg": "GPL-2+",
    "mate/abstract/Elephants.jpg": "GPL-2+",
    "aitzgorri_by_Aitzol_Berasategi.jpg": "CC-BY-4.0",
    "Bridge_by_Sander_Klootwijk.jpg": "CC-BY-SA-4.0",
    "Dragonfly_by_Bolly.jpg": "CC-BY-SA-4.0",
    "free_by_Peter_Nerlich.jpg": "CC-BY-SA-4.0",
    "friends_by_Aitzol_Berasategi.jpg": "CC-BY-4.0",
    "greentock_by_Peter_Nerlich.jpg": "CC-BY-SA-4.0",
    "Kleiber_by_Lukas_Baubkus.jpg": "CC-BY-SA-3.0",
    "life_by_Aitzol_Berasategi.jpg": "CC-BY-4.0",
    "Picture_0B_by_freespace.jpg": "CC-BY-4.0",
    "Picture_1A_by_freespace.jpg": "CC-BY-4.0",
    "picosdeeuropa_by_Aitzol_Berasategi.jpg": "CC-BY-4.0",
    "seeding_by_Clements_Engelhardt.jpg": "CC0-1.0",
    "sunset_by_Aitzol_Berasategi.jpg": "CC-BY-4.0",
    "Wine_by_Jakkub_Mede.jpg": "CC-BY-4.0",
}
"""Path below `backgrounds`, and licence."""


def load_wallpapers(folder: Path) -> dict[str, np.ndarray]:
    """Every wallpaper as uint8 [height, width, 3] with a long side of at most 1800.

    Raises:
        SystemExit: one is missing.
    """
    found = {}
    for name in WALLPAPERS:
        path = folder / name
        if not path.is_file():
            raise SystemExit(f"{path}: no such photograph; see training/wallpapers.py for the packages")
        with Image.open(path) as image:
            image.draft("RGB", (1800, 1800))
            picture = image.convert("RGB")
            picture.thumbnail((1800, 1800), Image.Resampling.BOX)
            found[Path(name).stem] = np.asarray(picture, dtype=np.uint8)
    return found
