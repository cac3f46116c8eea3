"""The slowest test files, the slowest first; they run before all others.

The first file compiles most kernels for the CPU. The next four files do not need these kernels, because a
process that needs a kernel waits while another process compiles it.
"""

LONGEST = (
    "compressors/kernels/test_kernels.py",
    "compressors/kernels/test_gpu_kernels.py",
    "compressors/kernels/test_machine_code.py",
    "test_conf.py",
    "models/test_image_models.py",
    "trainers/test_layouts.py",
    "test_run.py",
    "test_on_device.py",
    "test_stopping.py",
    "test_isolation.py",
    "trainers/test_resume.py",
    "test_refusals.py",
    "results/studies/test_convex_study.py",
    "test_gpu_bench.py",
    "compressors/test_contract.py",
    "trainers/test_autolrs.py",
    "test_sweeps.py",
    "test_convex.py",
    "test_bad_configurations.py",
    "results/compare/test_budget.py",
    "trainers/test_nonfinite.py",
    "test_security.py",
    "results/figures/test_figures.py",
    "models/convex/test_logistic_l2.py",
    "compressors/test_methods.py",
    "test_studies.py",
    "test_docs.py",
)
