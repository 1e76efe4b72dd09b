"""Results as one HTML file."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from support.runs import run

import spillway
from spillway import Simulation, gateway, workload

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("matplotlib")

HOSTILE = '<script>alert("1")</script>'


class Page(HTMLParser):
    """The elements of a page, checked for balance, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def simulation(num_requests: int = 400) -> Simulation:
    return Simulation(
        workload=workload.Synthetic(
            num_requests=num_requests,
            clients=[workload.Client(name="a", tenant=HOSTILE), workload.Client(name="b")],
        ),
        tenants=[workload.Tenant(name=HOSTILE), workload.Tenant(name="default")],
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=0.5)],
        gateway=gateway.Gateway(limit=gateway.FixedLimit()),
    ).with_({"metrics.timeline_step_s": 1.0})


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    result = spillway.simulate(simulation())
    result.report(tmp_path / "out.html", title="mine & yours")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.count("table") == 4  # causes, tenants, all requests, latencies
    assert page.count("img") == 3
    assert page.count("svg") == 4
    assert page.count("script") == 1
    assert "mine & yours" in page.texts
    assert HOSTILE in page.texts  # as text, not as an element
    sources = [attrs["src"] or "" for tag, attrs in page.tags if tag == "img"]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in text
    assert f"{result.summary()['completed']:,}" in page.texts
    whole = " ".join(page.texts)
    for finding in result.findings():
        assert str(finding) in whole
    goodput = result.summary()["goodput"]
    assert f"{goodput:.1%} of the requests were within all targets of their class" in whole
    assert sum(str(attrs.get("class")).split()[0] == "card"
               for tag, attrs in page.tags if tag == "div") <= 6  # fmt: skip


def test_charts_hold_the_figures_of_the_run(tmp_path: Path) -> None:
    result = spillway.simulate(simulation())
    result.report(tmp_path / "out.html")
    page = Page((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert "400 requests on 1 server" in page.texts  # a name, without a title
    charts = [json.loads(attrs["data-chart"] or "") for tag, attrs in page.tags if tag == "svg"]
    rate, ttft, in_flight, memory = charts
    step_s = rate["time_s"][1] - rate["time_s"][0]
    offered = sum(rate["lines"][0]["values"]) * step_s
    assert offered == pytest.approx(400, rel=1e-3)
    assert ttft["target"] == 500
    names = [[line["name"] for line in chart["lines"]] for chart in (in_flight, memory)]
    assert names == [["in flight", "limit"], ["KV blocks"]]
    kv = result.timeline["kv_utilization"]
    assert max(memory["lines"][0]["values"]) == pytest.approx(100 * kv.max(), rel=1e-3)


def test_a_result_without_requests_or_timeline_has_no_pictures(tmp_path: Path) -> None:
    streamed = simulation().with_({"metrics.streaming": True, "metrics.timeline_step_s": None})
    spillway.simulate(streamed).report(tmp_path / "out.html")
    assert Page((tmp_path / "out.html").read_text()).count("img") == 0


def test_a_run_of_nothing_has_a_page(tmp_path: Path) -> None:
    run([5.0], horizon_s=1).report(tmp_path / "out.html")
    Page((tmp_path / "out.html").read_text())


@pytest.mark.slow
def test_twenty_thousand_requests_take_less_than_one_megabyte(tmp_path: Path) -> None:
    spillway.simulate(simulation(20_000)).report(tmp_path / "out.html")
    assert (tmp_path / "out.html").stat().st_size < 1e6


@pytest.mark.slow
def test_a_browser_shows_it_without_an_error(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    spillway.simulate(simulation()).report(tmp_path / "out.html")
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={tmp_path / 'out.png'}",
            (tmp_path / "out.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert (tmp_path / "out.png").stat().st_size > 10_000
    assert "CONSOLE" not in done.stderr


# --- studies and comparisons ----------------------------------------------------------------------


def test_a_comparison_has_a_page(tmp_path: Path) -> None:
    systems = {"today": simulation(), HOSTILE: simulation().with_({"router": "least_loaded"})}
    comparison = spillway.compare(systems, seeds=3)
    comparison.report(tmp_path / "out.html")
    page = Page((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert (page.count("table"), page.count("img"), page.count("script")) == (1, 1, 1)
    assert HOSTILE in page.texts
    assert comparison.verdict in page.texts
    for verdict in comparison.verdicts:
        assert verdict.figure in page.texts
    for note in comparison.notes:
        assert note in page.texts
    Page(comparison._repr_html_())


@pytest.mark.slow
def test_a_study_has_a_page(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = {"gateway.limit.max_in_flight": (1, 512)}
    search = spillway.Study(simulation(), space, "goodput", seeds=2, sampler="random")
    search.optimize(9)
    search.report(tmp_path / "out.html", "a & b")
    page = Page((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert (page.count("table"), page.count("img")) == (2, 3)
    assert "a & b" in page.texts
    assert f"{search.best_trial.values[0]:.4g}" in page.texts
    assert search.verdict in page.texts
    assert search.verdict == "The current configuration is the best of 9 trials: goodput 1."
    (settings,) = (text for text in page.texts if text.startswith("schema:"))
    path = tmp_path / "best.yaml"
    path.write_text(settings, encoding="utf-8")
    assert spillway.load(path) == search.best
    Page(search._repr_html_())


def test_a_study_without_trials_has_a_page(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    search = spillway.Study(simulation(), {"gateway.limit.max_in_flight": (1, 64)}, "goodput")
    search.report(tmp_path / "out.html")
    page = Page((tmp_path / "out.html").read_text())
    assert page.count("img") == 0
    assert search.verdict in page.texts


# --- in notebooks ---------------------------------------------------------------------------------


def test_results_are_tables_in_notebooks() -> None:
    results = spillway.simulate(simulation(), seeds=range(2))
    for results_ in (results[0], results, spillway.study.grid(simulation(), {"warm_up_s": [0, 1]})):
        page = Page(results_._repr_html_())
        assert page.count("table") >= 1
        assert page.count("script") == 0


def bold(text: str) -> list[str]:
    return [part.partition("</b>")[0] for part in text.split("<b>")[1:]]


def test_settings_are_a_tree_with_what_differs_in_bold() -> None:
    text = simulation()._repr_html_()
    page = Page(text)
    assert page.count("details") > 10
    changed = bold(text)
    assert "timeline_step_s: 1.0 s" in changed
    assert "limit (1)" in changed
    assert "[0]: fixed" not in changed  # with the defaults of its kind
    assert "horizon_s: unset" in page.texts
    assert bold(Simulation()._repr_html_()) == ["Simulation"]
    opened = [tag for tag, attrs in page.tags if tag == "details" and "open" in attrs]
    assert len(opened) < page.count("details") / 2


def test_a_long_list_is_shortened() -> None:
    clients = [workload.Client(name=f"client {i}") for i in range(50)]
    page = Page(workload.Synthetic(clients=clients)._repr_html_())
    assert "… 30 more" in page.texts
    assert "[19]: client 19" in page.texts
    assert "[20]: client 20" not in page.texts
