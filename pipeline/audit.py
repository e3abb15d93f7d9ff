"""The former name of the audit on Spark, so `python -m oncelog.pipeline.audit` runs proof/audit."""

import runpy

if __name__ == "__main__":
    runpy.run_module("oncelog.proof.audit", run_name="__main__", alter_sys=True)
