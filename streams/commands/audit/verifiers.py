"""`braid audit verifiers` and `braid audit tools`: audits over the facts of the log."""

import sys

from streams.commands.audit.log_audit import read_facts
from streams.commands.console_output import print_json
from streams.commands.options import Json, LogFlags


def verifiers(*, source: LogFlags = LogFlags(), json: Json = False) -> None:
    """Audit the verifiers of the log: a check that never fails, a verdict that flips on the same files, answers that leak.

    Superseded verdicts count too. A verifier with fewer than 20 known branches has no strength. Exits with 1 when something
    is found.

    Example: `braid audit verifiers --from-dir results`
    """
    from agents.audit.verifier_audit import VerifierAudit

    audit = VerifierAudit()
    read_facts(source, audit.add)
    found = audit.plain()
    if json:
        print_json(found)
    else:
        from streams.views.audit_tables import verifier_page
        from streams.views.tables import show

        show(*verifier_page(found))
    if any(each["severity"] != "info" for verifier in found["verifiers"] for each in verifier["findings"]):
        sys.exit(1)


def tools(*, source: LogFlags = LogFlags(), json: Json = False) -> None:
    """Audit the tools that rollouts of the log were opened with: hidden characters, poisoned descriptions, rug pulls.

    Exits with 1 when something is found.

    Example: `braid audit tools --from-dir results`
    """
    from agents.audit.tool_audit import ToolAudit

    audit = ToolAudit()
    read_facts(source, audit.add)
    found = audit.plain()
    if json:
        print_json(found)
    else:
        from streams.views.audit_tables import tool_page
        from streams.views.tables import show

        show(*tool_page(found))
    if any(each["findings"] for each in found["tools"]):
        sys.exit(1)
