"""Matchers that decide by a request which HTTP filters run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2 as xds_extension_pb2
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import extensions
from gatehouse.compiler.backends.envoy.protobufs import packed

HeaderPredicate = matcher_pb2.Matcher.MatcherList.Predicate.SinglePredicate


def run_filters(
    filters: Sequence[extension_pb2.TypedExtensionConfig],
) -> matcher_pb2.Matcher.OnMatch:
    """Run filters one after the other."""
    action = composite_pb2.ExecuteFilterAction()
    action.filter_chain.typed_config.extend(filters)
    return _action(action)


def skip_filter() -> matcher_pb2.Matcher.OnMatch:
    """Run no filter."""
    return _action(skip_action_pb2.SkipFilter())


def _action(message: Message) -> matcher_pb2.Matcher.OnMatch:
    proto = xds_extension_pb2.TypedExtensionConfig(name="action", typed_config=packed(message))
    return matcher_pb2.Matcher.OnMatch(action=proto)


def for_methods(
    methods: Iterable[str],
    first: Sequence[extension_pb2.TypedExtensionConfig],
    filters: Sequence[extension_pb2.TypedExtensionConfig],
) -> matcher_pb2.Matcher:
    """Run filters, and others before them for requests with some methods.

    Filters that count requests must not be among them: each of the two lists has its own.
    """
    proto = matcher_pb2.Matcher(on_no_match=run_filters(filters) if filters else skip_filter())
    matcher = proto.matcher_list.matchers.add(on_match=run_filters([*first, *filters]))
    match_header(matcher.predicate.single_predicate, ":method", "|".join(methods))
    return proto


def idle() -> extension_matcher_pb2.ExtensionWithMatcher:
    """Return a filter that does nothing until a route configures it."""
    return _composite(matcher_pb2.Matcher(on_no_match=skip_filter()))


def per_route(matcher: matcher_pb2.Matcher) -> any_pb2.Any:
    """Return the configuration of a route for a filter that is :func:`idle` without it."""
    return packed(extension_matcher_pb2.ExtensionWithMatcherPerRoute(xds_matcher=matcher))


def run_for_methods(
    methods: Iterable[str], own: extension_pb2.TypedExtensionConfig
) -> extension_matcher_pb2.ExtensionWithMatcher:
    """Return a filter that runs another one for requests with some methods."""
    proto = matcher_pb2.Matcher(on_no_match=skip_filter())
    proto.matcher_tree.input.CopyFrom(_header(":method"))
    for method in methods:
        proto.matcher_tree.exact_match_map.map[method].CopyFrom(run_filters([own]))
    return _composite(proto)


def _composite(matcher: matcher_pb2.Matcher) -> extension_matcher_pb2.ExtensionWithMatcher:
    composite = extensions.extension("composite", composite_pb2.Composite())
    return extension_matcher_pb2.ExtensionWithMatcher(
        extension_config=composite, xds_matcher=matcher
    )


def match_header(predicate: HeaderPredicate, name: str, pattern: str) -> None:
    """Match requests with a header whose whole value matches a regular expression."""
    predicate.input.CopyFrom(_header(name))
    predicate.value_match.safe_regex.regex = pattern
    predicate.value_match.safe_regex.google_re2.SetInParent()


def _header(name: str) -> xds_extension_pb2.TypedExtensionConfig:
    header = http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name)
    return xds_extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(header))
