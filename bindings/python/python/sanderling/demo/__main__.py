"""`sanderling demo`, also as `python -m sanderling.demo`."""

from __future__ import annotations

import json
import sys

from sanderling import ClusterError, SanderlingError
from sanderling.demo.data import MissingTool
from sanderling.demo.options import parse
from sanderling.demo.progress import Progress


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 when every result is right and nothing was lost."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    progress = Progress(options.is_quiet)
    try:
        from sanderling.demo import report, table
        from sanderling.demo.run import run
        from sanderling.demo.summary import summarize

        record = run(options, progress)
        summary = summarize(record)
        path = report.write(record, summary, options.out)
    except ImportError as error:
        print(f"sanderling demo: {error}: pip install 'sanderling[demo]'", file=sys.stderr)
        return 1
    except (ClusterError, MissingTool, OSError, SanderlingError) as error:
        print(f"sanderling demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsanderling demo: interrupted; every process is stopped", file=sys.stderr)
        return 130
    if options.is_json:
        print(json.dumps({**summary.as_json(), "report": str(path)}, indent=2))
    else:
        print(table.text(summary, path.resolve().as_uri()))
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
