"""The workbench of the driver's tests: views are tried on real runs."""

from __future__ import annotations

from tests.workflow.driver.conftest import folder, kernels, open_wb, wb

__all__ = ["folder", "kernels", "open_wb", "wb"]
