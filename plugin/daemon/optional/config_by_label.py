"""Follows the label of the Node that names this node's configuration: nothing, unless a folder is declared.

In front of `plugin.publication.node_object.label_follower`, which is imported only then. What a value stands for is
read before the daemon is told of it: where it cannot be used, the configuration stays, and that is said in the log, on
the Node, in a metric and by `grapnel-node config`. Used in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError, os_reason
from plugin.daemon.optional.node_object import node_name
from plugin.settings.store import HeardLabel, read_heard_label, write_heard_label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.daemon.dependencies import ReadConfig
    from plugin.publication.node_object.label_follower import LabelFollower
    from plugin.settings.node_config import NodeConfig

ANNOTATION = "grapnel.dev/config-problem"
_TOPIC = "configuration by label"
_AFTER_START_S = 1.0
_FIRST_S = 10.0
_AGAIN_S = 60.0  # a refused value is read again at most so often: Nodes change often, and reading takes a while
_MAX_WORDS = 512


class ConfigByLabel:
    """`read` reads a configuration, `reload` has the daemon take what `read_again` returns, `annotate` the Node."""

    def __init__(
        self,
        read: ReadConfig,
        reload: Callable[[], None],
        annotate: Callable[[Mapping[str, str | None]], None],
        logger: Logger,
    ) -> None:
        self._read = read
        self._reload = reload
        self._annotate = annotate
        self._log = logger
        self._config: NodeConfig | None = None
        self._followed: tuple[str, str, str] | None = None
        self._follower: LabelFollower | None = None
        self._opening: asyncio.TimerHandle | None = None
        self._wanted: str | None = None  # what was heard
        self._accepted: str | None = None  # what of it could be used
        self._fresh: NodeConfig | None = None  # what that stands for, until the daemon takes it
        self._refused_at = 0.0
        self._heard = asyncio.Event()
        self._is_beginning = False
        self.problem: str | None = None  # "": the label's configuration counts; None: there is no label, or not yet

    async def first(self, config: NodeConfig, stop: asyncio.Event) -> NodeConfig:
        """Return the configuration to begin with: where the label was never heard, wait some seconds for it.

        Else GPUs would be offered in one way, given away, and wanted in another way a moment later.
        """
        by_label = config.settings.by_label
        if by_label is None or not config.kubernetes_api or by_label.value is not None:
            return config
        self._is_beginning = True
        self.follow(config)
        self._open()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._heard, stop)]
        await asyncio.wait(waits, timeout=_FIRST_S, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        self._is_beginning = False
        if not self._heard.is_set():
            self._log.warning("the label of the node is not known yet", hint="the default counts until it is")
        fresh, self._fresh = self._fresh, None
        return fresh or config

    def follow(self, config: NodeConfig) -> None:
        """Follow the label that this configuration names, from now on with what it says."""
        self._config = config
        by_label = config.settings.by_label
        followed = None
        if by_label is not None and config.kubernetes_api:
            followed = config.kubernetes_api, node_name(config, os.environ), by_label.label
        if followed == self._followed:
            return
        self.close()
        if self.problem:
            self._annotate({ANNOTATION: None})
        self._followed, self._wanted, self._accepted, self.problem = followed, None, None, None
        if followed is not None:
            heard = read_heard_label(config.state_folder)
            self.problem = None if heard is None else heard.problem  # until it is heard again
            self._opening = asyncio.get_running_loop().call_later(_AFTER_START_S, self._open)

    def read_again(self) -> NodeConfig:
        """Return the configuration as the files say now, with the label as it was heard; raises ConfigError."""
        fresh, self._fresh = self._fresh, None
        if fresh is not None:
            return fresh
        if self._wanted is not None and self._wanted != self._value:
            taken = self._take(self._wanted)
            if taken is not None:
                return taken
        return self._read() if self._value is None else self._read(self._value)

    def close(self) -> None:
        """Follow nothing any more."""
        if self._opening is not None:
            self._opening.cancel()
        if self._follower is not None:
            self._follower.stop()
        self._opening = self._follower = None

    @property
    def _value(self) -> str | None:
        """The value whose configuration counts, or is about to; None where it is not by a label, or never was heard."""
        if self._accepted is not None:
            return self._accepted
        by_label = None if self._config is None else self._config.settings.by_label
        return None if by_label is None else by_label.value

    def _open(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._opening = None
        if self._followed is None or self._follower is not None:
            return
        from plugin.publication.node_object.label_follower import LabelFollower

        loop, (source, node, label) = asyncio.get_running_loop(), self._followed

        def hear(value: str) -> None:
            try:
                loop.call_soon_threadsafe(self._on_label, follower, value)
            except RuntimeError:
                return  # the loop has ended: nothing waits for it any more

        follower = LabelFollower(node, label, source, os.environ, hear, self._log)
        self._follower = follower
        follower.start()

    def _on_label(self, follower: LabelFollower, value: str) -> None:
        if follower is not self._follower:
            return
        is_new = value != self._wanted
        self._wanted = value
        if value == self._value:
            if is_new or self.problem:
                self._accept(value)
        elif is_new or asyncio.get_running_loop().time() >= self._refused_at + _AGAIN_S:
            self._fresh = self._take(value)
            if self._fresh is not None and not self._is_beginning:
                self._reload()
        self._heard.set()

    def _take(self, value: str) -> NodeConfig | None:
        """Return what a value stands for, None where it cannot be used."""
        try:
            config = self._read(value)
        except ConfigError as error:
            self._refuse(value, error)
            return None
        self._log.info("configuration by label", value=value or "none")
        self._accept(value)
        return config

    def _accept(self, value: str) -> None:
        if self.problem:
            self._annotate({ANNOTATION: None})
        self._accepted, self.problem = value, ""
        self._log.standing(_TOPIC)
        self._remember(HeardLabel(value))

    def _refuse(self, value: str, error: ConfigError) -> None:
        problem = f"{value or 'no label'} cannot be used: {error.message}"
        self.problem, self._refused_at = problem, asyncio.get_running_loop().time()
        hint = f"the configuration stays; {error.hint}" if error.hint else "the configuration stays"
        self._log.standing(_TOPIC, problem, hint=hint)
        self._annotate({ANNOTATION: problem[:_MAX_WORDS]})
        self._remember(HeardLabel(self._value or "", value, problem))

    def _remember(self, heard: HeardLabel) -> None:
        if self._config is None or read_heard_label(self._config.state_folder) == heard:
            return
        problem = ""
        try:
            write_heard_label(self._config.state_folder, heard)
        except OSError as error:
            problem = f"the label of the node is not remembered: {os_reason(error)}"
        hint = {"hint": f"is there space in {self._config.state_folder}?"} if problem else {}
        self._log.standing("label of the node", problem, **hint)
