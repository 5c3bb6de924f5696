"""vigia completion."""

from __future__ import annotations

import click

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash: vigia completion bash > /etc/bash_completion.d/vigia
    zsh:  vigia completion zsh > "${fpath[1]}/_vigia"
    fish: vigia completion fish > ~/.config/fish/completions/vigia.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - for the type checker: the shells are click's own
    made = kind(context.find_root().command, {}, "vigia", "_VIGIA_COMPLETE")
    click.echo(made.source_template % made.source_vars())
