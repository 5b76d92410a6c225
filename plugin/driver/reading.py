"""What a GPU says of its condition: one reading, its counters, and XID errors. Plain values; `health` judges them."""

from __future__ import annotations

from typing import NamedTuple


class XidEvent(NamedTuple):
    """An XID error as the driver tells it. `device` is the UUID of a GPU or MIG device, "" when it cannot be told.

    The numbers are those of the GPU's instance and of its compute instance that the driver blames, None for none.
    """

    device: str
    xid: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Counters(NamedTuple):
    """What only the start of a GPU's driver state sets back. None: the GPU does not count it."""

    energy_mj: int | None = None
    volatile_corrected: int | None = None
    volatile_uncorrected: int | None = None


class Reading(NamedTuple):
    """What a GPU that answers says of itself. None: it does not know the question."""

    counters: Counters = Counters()
    aggregate_uncorrected: int | None = None
    ecc_mode_pending: bool = False  # another ECC mode waits for a reset
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    pages_pending: bool | None = None
    links_active: int | None = None
    slowdowns: tuple[str, ...] = ()  # why clocks are held down: thermal and power limits
    processes: int | None = None  # on the GPU, all its MIG devices included
    recovery_action: int | None = None  # NVML_GPU_RECOVERY_ACTION_*, 0 for none; from driver 570 on
    slices: tuple[tuple[str, int | None], ...] = ()  # its MIG devices, and how many processes are on each
