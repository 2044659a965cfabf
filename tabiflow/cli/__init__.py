"""The verbs: parse, call, print. What a verb means is decided below this package.

Heavy modules are imported by the verb that needs them, so that `plan` answers at once.
Exit codes: 0 all done, 2 the user's mistake, 3 finished with failures, 130 interrupted.
"""

import gc
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click
from rich.logging import RichHandler

from tabiflow.cli import audit, generate, job, machine, read, run
from tabiflow.cli.common import INTERRUPTED, MISTAKE, err
from tabiflow.errors import CellError, UserError, near
from tabiflow.redaction import Redacting, redacted

OURS = 1
"""The exit code of a bug."""
SELDOM = (100_000, 20, 20)
"""When garbage is looked for: what libraries and ledgers bring stays, and takes seconds to walk."""


class Verbs(click.Group):
    """Unknown verbs get a near name."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            hint = near(args[0], self.list_commands(ctx))
            ctx.fail(f"no verb `{args[0]}`" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tabiflow")
def verbs() -> None:
    """Sweeps of fine-tuning trials: plan, run, select, confirm, report."""


def main() -> None:
    """The console script."""
    gc.set_threshold(*SELDOM)
    terminal = RichHandler(console=err, show_path=False, show_level=False)
    handler = terminal if err.is_terminal else logging.StreamHandler()
    handler.addFilter(Redacting())
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    try:
        code = execute(sys.argv[1:])
    except Exception:
        click.echo(redacted(traceback.format_exc()), err=True)
        code = OURS
    gc.freeze()  # The end of the process would look through all of it for garbage.
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """The exit code. A user's mistake is one line on standard error; ours raises."""
    try:
        code = verbs.main(list(arguments), prog_name="tabiflow", standalone_mode=False)
    except (UserError, CellError) as error:
        return _complain(str(error))
    except click.ClickException as error:
        return _complain(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return code or 0


def _complain(line: str) -> int:
    click.echo(f"tabiflow: {' '.join(redacted(line).split())}", err=True)
    return MISTAKE


for _verb in (
    read.plan_verb,
    run.sweep,
    read.status,
    read.failures,
    run.resubmit,
    read.select,
    run.confirm,
    read.report_verb,
    read.show,
    read.list_verb,
    audit.audit_verb,
    generate.serve,
    generate.cetvel,
    machine.ui,
    machine.doctor,
    job.job,
):
    verbs.add_command(_verb)
