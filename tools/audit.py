"""Known vulnerabilities of the installed packages, from pip-audit; says plainly how many could not be looked up.

Without a connection to PyPI's database pip-audit skips every package and still reports that nothing was found.
"""

import json
import subprocess
import sys


def main() -> int:
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--local",
        "--skip-editable",
        "--progress-spinner",
        "off",
        "-f",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return report(done.stdout, done.stderr)


def report(stdout: str, stderr: str) -> int:
    """Print what pip-audit found; returns 1 if a package is vulnerable."""
    try:
        packages = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (stderr.strip().splitlines() or ["no output"])[-1]
        print(f"audit: SKIPPED, pip-audit did not run ({reason[:150]})")
        return 0
    looked_up = [package for package in packages if "skip_reason" not in package]
    if not looked_up:
        print(
            f"audit: SKIPPED, none of {len(packages)} packages could be looked up (no connection to PyPI's database?)"
        )
        return 0
    bad = [package for package in looked_up if package.get("vulns")]
    for package in bad:
        names = ", ".join(
            f"{one['id']} (fixed in {', '.join(one['fix_versions']) or 'none'})" for one in package["vulns"]
        )
        print(f"audit: {package['name']} {package['version']}: {names}")
    print(
        f"audit: {len(bad)} of {len(looked_up)} packages are vulnerable; {len(packages) - len(looked_up)} not looked up"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
