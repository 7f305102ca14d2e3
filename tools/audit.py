"""Look for known vulnerabilities of the installed packages with pip-audit; say so if it cannot run."""

import subprocess
import sys

UNREACHABLE = ("ServiceError", "ConnectionError", "ProxyError", "SSLError", "Max retries", "timed out", "HTTPError")


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if "No module named pip_audit" in said:
        print("audit: SKIPPED, pip-audit is not installed (pip install pip-audit)")
        return 0
    if done.returncode and any(word in said for word in UNREACHABLE):
        print(
            f"audit: SKIPPED, the database of vulnerabilities cannot be reached ({said.strip().splitlines()[-1][:120]})"
        )
        return 0
    print(said.strip())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
