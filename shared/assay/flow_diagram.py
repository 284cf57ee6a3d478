"""The flow as a tree, made from the catalogue: `python -m assay.flow_diagram`."""

from __future__ import annotations

from collections.abc import Iterator

from assay.topics import Catalogue, Topic, catalogue

_PUBLISHERS = "anyone"
_SEEN = " (above)"


def flow_diagram(flow: Catalogue) -> str:
    """Who writes which topic and who acts on it, from the publishers down.

    A topic or service that comes again is shown by its name alone; services that only keep what
    they read stand in the last lines.
    """
    drawing = _Drawing(flow)
    lines = ["publishers (any language) and the HTTP API", *drawing.topics_of(_PUBLISHERS, "")]
    for topic in flow:
        for service in topic.producers:
            if service not in drawing.seen and service != _PUBLISHERS:
                lines += [drawing.label(service), *drawing.topics_of(service, "")]
    return "\n".join([*lines, *_sinks(flow)]) + "\n"


class _Drawing:
    def __init__(self, flow: Catalogue) -> None:
        self._flow = flow
        self.seen: set[str] = set()

    def label(self, service: str) -> str:
        return f"{service} (planned)" if service in self._flow.planned else service

    def topics_of(self, service: str, indent: str) -> Iterator[str]:
        """The topics a service writes, each with what follows from it."""
        self.seen.add(service)
        topics = [t for t in self._flow if service in t.producers and service not in t.consumers]
        for topic in topics:
            last = topic is topics[-1]
            known = topic.name in self.seen
            yield f"{indent}{'└' if last else '├'}─► {topic.name}{_SEEN if known else ''}"
            if not known:
                self.seen.add(topic.name)
                yield from self._consumers_of(topic, indent + ("    " if last else "│   "))

    def _consumers_of(self, topic: Topic, indent: str) -> Iterator[str]:
        for service in topic.consumers:
            last = service == topic.consumers[-1]
            known = service in self.seen
            yield f"{indent}{'└' if last else '├'}── {self.label(service)}{_SEEN if known else ''}"
            if not known:
                yield from self.topics_of(service, indent + ("    " if last else "│   "))


def _sinks(flow: Catalogue) -> Iterator[str]:
    everything = flow.everything()
    for sink in dict.fromkeys(sink for topic in everything for sink in topic.sinks):
        kept = [topic.name for topic in everything if sink in topic.sinks]
        if len(kept) == len(everything):
            yield f"{sink} keeps every topic and every dead letter"
        else:
            dead = {topic.name for topic in flow.dead_letters()}
            names = [name for name in kept if name not in dead]
            rest = ["every dead letter"] if dead <= set(kept) else []
            yield f"{sink} also reads {', '.join([*names, *rest])}"


if __name__ == "__main__":
    print(flow_diagram(catalogue()), end="")
