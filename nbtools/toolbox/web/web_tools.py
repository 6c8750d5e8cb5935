"""Tools for the web: search it, read a page, send a request."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval, Len

from nbtools.contract.result import Output
from nbtools.contract.signature.parameters import Canonical
from nbtools.contract.tool import Context, Effects, Reading, tool
from nbtools.errors import ConfigMissing, HttpError, InvalidArguments, LimitExceeded
from nbtools.toolbox.policies import SEARCH_KEYS, WebPolicy
from nbtools.toolbox.result_types import HttpAnswer, PageText, SearchResults

if TYPE_CHECKING:
    from nbtools.toolbox.web.fetch import Answer

_Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _one_spelling(url: str) -> str:
    from nbtools.toolbox.web.address import canonical_url

    return canonical_url(url)


_Url = Annotated[str, Canonical(_one_spelling)]
_SHOWN = 20_000
_ENDPOINTS = {"serper": "https://google.serper.dev/search", "tavily": "https://api.tavily.com/search"}


async def _read_url(values: Mapping[str, Any], ctx: Context) -> dict[str, Reading]:
    from nbtools.toolbox.web.address import servers_read

    return {"url": Reading(parts=servers_read(values["url"]), is_address=True)}


async def _read_no_address(values: Mapping[str, Any], ctx: Context) -> dict[str, Reading]:
    return {}  # a query goes to the provider, also one that is an address


def _check_address(ctx: Context, url: str) -> None:
    """Check the rules for an address that a redirect leads to, in each way that a server may read it."""
    from nbtools.toolbox.web.address import servers_read

    for one in servers_read(url):
        ctx.check_rules(url=one)


def _effects_of_reading(values: Mapping[str, Any], ctx: Context) -> Effects:
    # What is not public may be the person's own.
    return Effects(read_only=True, open_world=True, public=not ctx.use(WebPolicy).allow_private)


@tool(
    title="Search the web",
    read_only=True,
    open_world=True,
    effects_of=_effects_of_reading,
    readings_of=_read_no_address,
    examples=({"query": "DuckDB 2.0 release notes"},),
)
def web_search(
    query: Annotated[str, Len(1, 2_000)],
    num_results: Annotated[int, Interval(ge=1, le=50)] = 10,
    *,
    ctx: Context,
) -> Output[SearchResults]:
    """Search the web; returns results: title, url and snippet, the best first.

    The search is done by Serper or Tavily, as WEB_SEARCH_PROVIDER says, with the key in SERPER_API_KEY or
    TAVILY_API_KEY.

    Parameters
    ----------
    query
        What to search for, at most 2,000 characters.
    num_results
        How many results at most, 1 to 50.

    Raises
    ------
    ConfigMissing
        The provider's key is not set.
    HttpError, NetworkError, CallTimeout
        The provider did not answer as it should.
    """
    from nbtools.toolbox.web.fetch import fetch

    policy = ctx.use(WebPolicy)
    provider = policy.provider
    if provider not in SEARCH_KEYS:
        raise ConfigMissing(
            f"there is no search provider {provider!r}.", hint="Set WEB_SEARCH_PROVIDER to serper or tavily."
        )
    key = policy.variable(SEARCH_KEYS[provider])
    if key is None:
        raise ConfigMissing(
            f"searching with {provider} needs a key, and {SEARCH_KEYS[provider]} is not set.",
            hint=f"Set {SEARCH_KEYS[provider]}, or choose another provider with WEB_SEARCH_PROVIDER.",
        )
    headers, body = _provider_request(provider, key, query, num_results)
    url = policy.endpoints.get(provider, _ENDPOINTS[provider])
    # The key must not travel on to wherever a redirect leads.
    answer = fetch(policy, "POST", url, headers=headers, body=json.dumps(body).encode(), redirects=0)
    if answer.status in {401, 403}:
        raise HttpError(f"{provider} refuses the key ({answer.status}).", hint=f"Check {SEARCH_KEYS[provider]}.")
    answer.raise_for_status()
    results = _results(provider, answer)[:num_results]
    lines = [f"{at}. {item['title']}\n   {item['url']}\n   {item['snippet']}" for at, item in enumerate(results, 1)]
    return Output(data={"results": results}, text="\n".join(lines) or f"Nothing was found for {query!r}.")


def _provider_request(provider: str, key: str, query: str, count: int) -> tuple[dict[str, str], dict[str, Any]]:
    kind = {"Content-Type": "application/json"}
    if provider == "serper":
        return {**kind, "X-API-KEY": key}, {"q": query, "num": count}
    return {**kind, "Authorization": f"Bearer {key}"}, {"query": query, "max_results": count}


def _results(provider: str, answer: Answer) -> list[dict[str, str]]:
    """Return title, URL and snippet of each hit, whatever the provider calls them.

    Raises
    ------
    HttpError
        The answer is not what the provider documents.
    """
    listed, url, snippet = ("organic", "link", "snippet") if provider == "serper" else ("results", "url", "content")
    try:
        # An answer without hits may lack the list.
        items = json.loads(answer.body).get(listed) or ()
        return [
            {"title": str(item.get("title", "")), "url": str(item[url]), "snippet": str(item.get(snippet, ""))}
            for item in items
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HttpError(f"{provider} did not answer with a list of results.", retryable=True) from None


@tool(
    title="Read a web page",
    read_only=True,
    open_world=True,
    effects_of=_effects_of_reading,
    readings_of=_read_url,
    examples=({"url": "https://example.org/"}, {"url": "https://example.org/", "selector": "h1"}),
)
def web_scrape(url: _Url, selector: str | None = None, *, ctx: Context) -> Output[PageText]:
    """Read a web page as text; returns url (after redirects), title, content and extracted_text.

    Content is the readable text of the page, extracted_text that of the elements which the selector matches (of the
    whole page without one). At most 5 MB and 100,000 tags are read and 200,000 characters returned, within 30 s;
    scripts are not run. Addresses that are not public are refused unless the settings allow them.

    Parameters
    ----------
    url
        Address of the page, http or https.
    selector
        CSS selector such as "article p" or "#prices td"; null takes everything.

    Raises
    ------
    PermissionDenied
        The address is not public.
    HttpError
        The server answered with an error.
    NetworkError, CallTimeout
        It could not be reached (in time).
    ParseError
        It is not a page with text.
    """
    from nbtools.toolbox.web.fetch import fetch
    from nbtools.toolbox.web.page import read_page

    answer = fetch(
        ctx.use(WebPolicy),
        "GET",
        url,
        headers={"Accept": "text/html,application/xhtml+xml,text/plain,*/*;q=0.5"},
        judge=functools.partial(_check_address, ctx),
    )
    answer.raise_for_status()
    page = read_page(answer.body, answer.header("Content-Type"), selector)
    data: dict[str, Any] = {
        "url": answer.url,
        "title": page.title,
        "content": page.content,
        "extracted_text": page.extracted_text,
    }
    if page.matches is not None:
        data["matches"] = page.matches
    if page.truncated or answer.truncated:
        data["truncated"] = True
    return Output(data=data, text=_page_report(data, selector))


def _page_report(data: Mapping[str, Any], selector: str | None) -> str:
    body = str(data["extracted_text"])
    if selector is not None and not data["matches"]:
        body = f"[nothing on the page matches {selector!r}]"
    cut = "\n[cut: the page is longer]" if data.get("truncated") else ""
    return "\n\n".join(part for part in (data["title"], body or "[the page has no text]") if part) + cut


@tool(
    title="Send an HTTP request",
    destructive=True,
    open_world=True,
    readings_of=_read_url,
    examples=(
        {"method": "GET", "url": "https://example.org/api/items?limit=5"},
        {"method": "POST", "url": "https://example.org/api/items", "body": {"name": "pen"}},
    ),
)
def http_client(
    method: _Method,
    url: _Url,
    headers: dict[str, str] | None = None,
    body: str | dict[str, Any] | list[Any] | None = None,
    *,
    ctx: Context,
) -> Output[HttpAnswer]:
    """Send an HTTP request and return the answer, whatever its status.

    Returns status_code, headers, body, error (null below status 400, else the status in words) and url (after
    redirects). A body that is not text is Base64, and body_encoding says so. At most 5 MB within 30 s; redirects are
    followed, without the caller's headers when they lead to another server; 429 and 503 are tried again. Addresses
    that are not public are refused unless the settings allow them.

    Parameters
    ----------
    method
        GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS.
    url
        Address, http or https.
    headers
        Names and values; those that describe the connection (Host, Content-Length, …) are set by it.
    body
        Text is sent as it is, an object or a list as JSON.

    Raises
    ------
    PermissionDenied
        The address is not public.
    NetworkError, CallTimeout
        There was no answer (in time).
    LimitExceeded
        The answer is too large; what came of it is in data.
    """
    from nbtools.toolbox.web.fetch import fetch

    policy = ctx.use(WebPolicy)
    sending = dict(headers or {})
    content = _content(body, sending)
    answer = fetch(policy, method, url, headers=sending, body=content, judge=functools.partial(_check_address, ctx))
    error = f"{answer.status} {answer.reason}".strip() if answer.status >= 400 else None
    text, encoding = _body_text(answer)
    data: dict[str, Any] = {
        "status_code": answer.status,
        "headers": dict(answer.headers),
        "body": text,
        "error": error,
        "url": answer.url,
        **({"body_encoding": encoding} if encoding else {}),
    }
    if answer.truncated:
        raise LimitExceeded(
            f"the answer has more than {policy.body_bytes:,} bytes.",
            hint="Ask for less, by a range or a filter.",
            data=data,
        )
    body_text = text if not encoding else f"[{len(answer.body):,} bytes of {answer.header('Content-Type')}]"
    cut = f"\n[cut: {len(body_text):,} characters in all]" if len(body_text) > _SHOWN else ""
    return Output(data=data, text=f"{answer.status} {answer.reason}\n\n{body_text[:_SHOWN]}{cut}".strip())


def _content(body: str | dict[str, Any] | list[Any] | None, headers: dict[str, str]) -> bytes | None:
    """Return the bytes to send; the content type is set where the caller did not."""
    if body is None:
        return None
    typed = any(name.lower() == "content-type" for name in headers)
    if not isinstance(body, str):
        if not typed:
            headers["Content-Type"] = "application/json"
        try:
            return json.dumps(body).encode()
        except (TypeError, ValueError, RecursionError) as exc:
            raise InvalidArguments(f"the body cannot be written as JSON: {exc}.") from None
    if not typed:
        headers["Content-Type"] = "text/plain; charset=utf-8"
    return body.encode("utf-8", "replace")


def _body_text(answer: Answer) -> tuple[str, str | None]:
    """Return a body as text, or as Base64 where it is none, and how it was encoded then."""
    from nbtools.toolbox.web.page import charset_of, declared_inside, decode, is_text

    kind = answer.header("Content-Type")
    if answer.body and (not is_text(kind) or (not kind and b"\0" in answer.body)):
        return base64.b64encode(answer.body).decode(), "base64"
    inside = declared_inside(answer.body) if "html" in kind or "xml" in kind else None
    return decode(answer.body, charset_of(kind) or inside), None


TOOLS = (web_search, web_scrape, http_client)
"""The tools of this module."""
