//! The first screen of a report, as a browser draws it.

use results::{Results, Samples};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use testing::{Need, is_installed, skip};

#[test]
fn answer_chart_and_table_begin_on_the_first_screen() {
    if !is_installed(CHROMIUM) {
        return skip(Need::Program(CHROMIUM));
    }
    let measured = measured();
    for (name, _) in shapes() {
        for (width, height) in SCREENS {
            let page = &measured[format!("{name} {width}")];
            let at = |what: &str| page[what].as_f64().unwrap_or_else(|| panic!("{what}: {page}"));
            let screen = f64::from(height);
            assert!(at("answer") < at("chart") && at("chart") < at("table"), "{name}: {page}");
            // The heads of the table and some rows are on the screen, too.
            assert!(at("row") < screen, "{name} at {width}: {page}");
            assert!(at("scroll_width") <= at("client_width"), "{name} overflows: {page}");
            assert!(width > 400 || at("chart_height") <= 250.0, "{name}: {page}");
            assert_eq!(page["open"], 0, "{name}: {page}");
        }
    }
}

#[test]
fn points_are_read_by_keyboard_and_a_field_filters_the_rows() {
    if !is_installed(CHROMIUM) {
        return skip(Need::Program(CHROMIUM));
    }
    let page = &measured()["quic-tun 1400"];
    assert!(page["focused"].as_str().unwrap().contains("tcp-cubic at loss 0%: "), "{page}");
    assert!(page["right"].as_str().unwrap().contains("tcp-cubic at loss 1%: "), "{page}");
    assert!(page["down"].as_str().unwrap().contains("tcp, reference at loss 1%: "), "{page}");
    let [shown, all] = ["filtered", "rows"].map(|key| page[key].as_u64().unwrap());
    assert!(shown > 0 && shown < all, "{page}");
}

/// Returns the page with a script that measures positions, and without the policy that refuses
/// scripts.
fn with_probe(page: &str) -> String {
    let policy = page.find("<meta http-equiv=\"Content-Security-Policy\"").unwrap();
    let end = policy + page[policy..].find('>').unwrap() + 1;
    let open = page[..policy].to_owned() + &page[end..];
    open.replace("</body>", &format!("<script>{PROBE}</script></body>"))
}

/// Draws every page in a wide and a narrow frame of a single browser window: a window itself cannot
/// be as narrow as a phone.
fn measured() -> Value {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut frames = String::new();
    for (name, results) in shapes() {
        let results = Results::from_json(&results.to_string(), Path::new(name)).unwrap();
        let page = report::html::render(&results, &Samples::new(name), &[], "");
        std::fs::write(folder.join(format!("{name}.html")), with_probe(&page)).unwrap();
        for (width, height) in SCREENS {
            frames += &format!(
                "<iframe name=\"{name} {width}\" src=\"{name}.html\" width={width} height={height} \
                 style=\"border:0\"></iframe>"
            );
        }
    }
    let collect = "const all = {}; onmessage = (e) => { Object.assign(all, e.data); \
                   document.getElementById('measured').textContent = JSON.stringify(all); }";
    let index = folder.join("index.html");
    let text = format!("<pre id=measured></pre><script>{collect}</script>{frames}");
    std::fs::write(&index, text).unwrap();
    let output = Command::new(CHROMIUM)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(["--dump-dom", "--window-size=1500,1000"])
        .arg(format!("file://{}", index.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = dom.find("<pre id=\"measured\">").expect("the browser draws the page") + 19;
    let text = dom[begin..].split("</pre>").next().unwrap();
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}, {output:?}"))
}

/// Returns reports of five shapes: columns of a reference, files, a table without a reference,
/// verdicts of cases, and a sweep of many axes.
fn shapes() -> Vec<(&'static str, Value)> {
    let all = |lab, systems: &[&str], axes: &[(&str, &[&str])], metrics: &[&str]| {
        run(lab, systems, &product(axes), metrics)
    };
    let mut tunnel = all(
        "quic-tun",
        &["tcp-cubic", "tcp-bbr", "tcp-reno", "weir-tunnel", "hysteria"],
        &[("loss", &["0%", "0.1%", "0.5%", "1%", "5%"]), ("rtt", &["1ms", "20ms", "100ms"])],
        &[
            "sender_mbit_s",
            "goodput_mbit_s",
            "cpu_percent.ksoftirqd",
            "cpu_percent.client",
            "drops",
        ],
    );
    tunnel["headline"] = json!(LONG);
    tunnel["view"] = json!({"metric": "goodput_mbit_s", "rows": "loss", "columns":
        ["sender_mbit_s", "goodput_mbit_s", "cpu_percent.ksoftirqd", "cpu_percent.client"]});
    tunnel["reference"] = json!([
        {"system": "tcp", "systems": ["tcp-cubic"], "axes": {"loss": "0%", "rtt": "1ms"},
         "metrics": {"goodput_mbit_s": 561.0, "cpu_percent.ksoftirqd": 18.7}, "source": "a report"},
        {"system": "tcp", "systems": ["tcp-cubic"], "axes": {"loss": "1%", "rtt": "1ms"},
         "metrics": {"goodput_mbit_s": 60.3}, "source": "a report"},
    ]);
    compare(&mut tunnel, "goodput_mbit_s", "weir-tunnel", &["tcp-cubic", "hysteria"]);

    let mut files = all(
        "tcpa",
        &["cubic", "bbr", "tcpa", "tcpa-warm"],
        &[("file", &["640KB", "8MB", "25MB"]), ("path", &["all", "nine"])],
        &["kbyte_s", "availability_percent", "ideal_kbyte_s"],
    );
    files["view"] = json!({"metric": "kbyte_s", "rows": "file", "columns":
        ["kbyte_s", "availability_percent"]});
    files["valid"] = json!(false);
    files["invalid_reasons"] = json!(["the link was late in 3 of 24 cells ".repeat(3)]);
    compare(&mut files, "kbyte_s", "tcpa", &["cubic", "bbr"]);

    let mut rules = all(
        "flow-rules",
        &["weir-switch", "ovs-dpdk", "ovs-kernel"],
        &[
            ("set", &["base", "mac", "nat", "raw"]),
            ("rules", &["1", "256", "1024", "4096", "65536", "262144"]),
            ("pmds", &["1", "2"]),
        ],
        &["capacity_pps", "ndr_pps", "cycles", "load_s"],
    );
    rules["view"] = json!({"metric": "capacity_pps", "rows": "rules"});
    rules["warnings"] = json!(["CPU frequency scaling is on", "one", "two", "three", "four"]);
    compare(&mut rules, "capacity_pps", "weir-switch", &["ovs-dpdk"]);

    let cases: Vec<String> = (0..48).map(|case| format!("fault-{case}")).collect();
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    let mut faults = all(
        "faults",
        &["doctor", "doctor-peer"],
        &[("fault", &cases)],
        &["first_verdict_right", "seconds"],
    );
    faults["view"] = json!({"metric": "first_verdict_right", "rows": "fault"});
    let row = |case: &&str| {
        json!({"name": case, "expected": "the path drops packets", "turns": 6, "right": 5,
               "counts": {"the path drops packets": 5, "the sender waits": 1}})
    };
    let rows: Vec<Value> = cases.iter().map(row).collect();
    faults["confusion"] = json!({"axis": "fault", "rows": rows,
        "verdicts": ["the path drops packets", "the sender waits"]});

    let mut grid = run("cc-grid", &["cubic", "bbr", "bbr3", "dctcp", "tcpa"], &sweep(), GRID);
    grid["view"] = json!({"metric": "share_of_ideal", "rows": "buffer", "system": "tcpa"});
    grid["overall"] = json!([{"metric": "share_of_ideal", "mean": "geometric", "cells": 12,
        "systems": {"cubic": 0.7, "bbr": 0.9, "bbr3": 0.9, "dctcp": 0.7, "tcpa": 0.95},
        "best": "tcpa", "ahead": {"tcpa": 9, "bbr": 3}}]);
    vec![
        ("quic-tun", tunnel),
        ("tcpa", files),
        ("flow-rules", rules),
        ("faults", faults),
        ("cc-grid", grid),
    ]
}

/// Returns points that differ from the usual point in a single axis.
fn sweep() -> Vec<Value> {
    let axes: &[(&str, &[&str])] = &[
        ("rate", &["100mbit", "10mbit", "1gbit"]),
        ("rtt", &["100ms", "10ms", "200ms"]),
        ("buffer", &["1bdp", "0.2bdp", "4bdp", "8bdp"]),
        ("loss", &["0%", "1%", "bursts"]),
        ("beside", &["none", "own", "cubic"]),
        ("queue", &["droptail", "codel"]),
    ];
    let usual: serde_json::Map<String, Value> =
        axes.iter().map(|(name, values)| ((*name).to_owned(), json!(values[0]))).collect();
    let mut points = vec![json!(usual)];
    for (name, values) in axes {
        for value in &values[1..] {
            let mut point = usual.clone();
            point[*name] = json!(value);
            points.push(json!(point));
        }
    }
    points
}

fn product(axes: &[(&str, &[&str])]) -> Vec<Value> {
    let mut points = vec![json!({})];
    for (name, values) in axes {
        let with = |point: &Value, value: &str| {
            let mut point = point.clone();
            point[*name] = json!(value);
            point
        };
        points = points.iter().flat_map(|p| values.iter().map(move |v| with(p, v))).collect();
    }
    points
}

fn run(lab: &str, systems: &[&str], points: &[Value], metrics: &[&str]) -> Value {
    let mut cells = Vec::new();
    for (place, point) in points.iter().enumerate() {
        for (number, system) in systems.iter().enumerate() {
            let metric = |(index, name): (usize, &&str)| {
                let value = 500.0 * (number + 1) as f64 / (place + index + 2) as f64;
                let value = if *name == "drops" { 0.0 } else { value };
                let figures = json!({"median": value, "ci95": [value * 0.95, value * 1.05],
                                     "coverage": 0.96875, "n": 6, "unit": ""});
                ((*name).to_owned(), figures)
            };
            let metrics: serde_json::Map<String, Value> =
                metrics.iter().enumerate().map(metric).collect();
            cells.push(json!({"system": system, "axes": point, "metrics": metrics}));
        }
    }
    json!({"lab": lab, "title": "A title of the usual length for a lab's report page", "valid": true,
           "question": "How much does the system carry where packets are lost, and what does it cost?",
           "headline": LONG, "cells": cells})
}

fn compare(run: &mut Value, metric: &str, a: &str, against: &[&str]) {
    let cells = run["cells"].as_array().unwrap();
    let own: Vec<Value> = cells.iter().filter(|cell| cell["system"] == a).cloned().collect();
    let compared = own.iter().flat_map(|cell| {
        against.iter().map(move |b| {
            json!({"metric": metric, "axes": cell["axes"], "a": a, "b": b, "verdict": "better",
                   "ratio": {"median": 1.31, "ci95": [1.2, 1.4], "coverage": 0.95, "n": 6}})
        })
    });
    run["comparisons"] = compared.collect();
}

const CHROMIUM: &str = "chromium";
const SCREENS: [(u32, u32); 2] = [(1400, 900), (390, 844)];
const GRID: &[&str] = &["share_of_ideal", "queue_ms.p95", "jain", "retransmit_percent"];
/// A headline with the maximum number of words.
const LONG: &str = "At 5 % loss and a round trip of 20 ms the tunnel carries 356 of 600 Mbit/s, BBR \
    298 and CUBIC 2.35, for four times as much CPU time on both of the hosts.";
const PROBE: &str = r##"
addEventListener("load", () => {
  const visible = (query) => [...document.querySelectorAll(query)].find((e) => e.getClientRects().length);
  const box = (query) => visible(query)?.getBoundingClientRect();
  const found = {
    answer: box(".answer")?.top, chart: box("figure.first svg")?.top,
    chart_height: box("figure.first svg")?.height, table: box("#results table")?.top,
    row: box("#results tbody tr:nth-child(2)")?.bottom,
    scroll_width: document.documentElement.scrollWidth,
    client_width: document.documentElement.clientWidth,
    open: document.querySelectorAll("details[open]").length,
  };
  const reading = () => visible(".reading")?.textContent;
  const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const points = [...document.querySelectorAll("figure.first svg.chart")]
    .find((chart) => chart.getClientRects().length)?.querySelectorAll("g.point") ?? [];
  points[0]?.focus();
  found.focused = reading();
  for (let step = 0; step < 3; step += 1) press("ArrowRight");
  found.right = reading();
  press("ArrowDown");
  found.down = reading();
  const field = document.querySelector("input[data-filter]");
  const rows = [...document.querySelectorAll("#every-metric tbody tr")];
  if (field) {
    field.value = "sent 20ms";
    field.dispatchEvent(new Event("input"));
  }
  found.rows = rows.length;
  found.filtered = rows.filter((row) => !row.hidden).length;
  parent.postMessage({ [window.name]: found }, "*");
});
"##;
