use report::charts::svg::{
    Caption, Cdf, ChartLine, Distribution, Forest, ForestRow, Layer, LineChart, Point, Stacked,
    Strip, StripRow,
};
use results::{Ratio, Verdict};

#[test]
fn a_line_chart_is_drawn_as_recorded() {
    let chart = LineChart {
        caption: caption("Goodput along loss"),
        x_label: "loss".to_owned(),
        x_values: ["0%", "1%", "5%"].map(str::to_owned).to_vec(),
        y_label: "Goodput, Mbit/s".to_owned(),
        lines: vec![
            line("tcp-cubic", 0, false, &[561.0, 60.3, 12.8]),
            line("tcp, reference", 0, true, &[562.0, 60.7, 13.0]),
            line("weir-tunnel", 1, false, &[588.0, f64::NAN, 402.0]),
        ],
    };
    snapshot("lines", &chart.render().into_string());
}

#[test]
fn a_forest_plot_is_drawn_as_recorded() {
    let row = |label: &str, median: f64, verdict| ForestRow {
        group: "weir-tunnel / tcp-cubic".to_owned(),
        label: label.to_owned(),
        ratio: Ratio {
            ci95: Some([median * 0.9, median * 1.1]),
            coverage: Some(0.96875),
            n: 6,
            ..Ratio::single(median)
        },
        verdict,
        words: verdict.word().to_owned(),
    };
    let chart = Forest {
        caption: caption("Ratios"),
        x_label: "ratio".to_owned(),
        threshold: Some(0.05),
        rows: vec![
            row("loss 0%", 1.01, Verdict::Same),
            row("loss 1%", 9.8, Verdict::Better),
            row("loss 5%", 0.5, Verdict::Worse),
            row("loss 9%", f64::NAN, Verdict::Undecided),
            ForestRow {
                ratio: Ratio {
                    range: Some([2.0, f64::INFINITY]),
                    n: 3,
                    ..Ratio::single(f64::INFINITY)
                },
                words: "? 3 more blocks (primary)".to_owned(),
                ..row("loss 20%", 1.0, Verdict::Undecided)
            },
        ],
    };
    snapshot("forest", &chart.render().into_string());
    snapshot("forest_narrow", &chart.render_narrow().into_string());
}

#[test]
fn a_distribution_is_drawn_as_recorded() {
    let chart = Cdf {
        caption: caption("Flow completion"),
        x_label: "ms".to_owned(),
        distributions: vec![
            Distribution { name: "caqm".to_owned(), colour: 0, values: vec![3.0, 1.0, 2.0] },
            Distribution { name: "none".to_owned(), colour: 1, values: Vec::new() },
        ],
    };
    snapshot("cdf", &chart.render().into_string());
}

#[test]
fn a_strip_of_repeats_is_drawn_as_recorded() {
    let chart = Strip {
        caption: caption("Every repeat"),
        x_label: "Mbit/s".to_owned(),
        rows: vec![StripRow {
            label: "tcp-cubic".to_owned(),
            colour: 0,
            values: vec![55.0, 57.1, f64::INFINITY],
            median: 57.1,
        }],
    };
    snapshot("strip", &chart.render().into_string());
}

#[test]
fn shares_over_time_are_stacked_as_recorded() {
    let layer = |name: &str, colour, values: &[f64]| Layer {
        name: name.to_owned(),
        colour,
        values: values.to_vec(),
    };
    let chart = Stacked {
        caption: caption("Limited by"),
        y_label: "share, %".to_owned(),
        time_s: vec![0.0, 0.5, 1.0],
        layers: vec![
            layer("cwnd", 0, &[50.0, 60.0, 70.0]),
            layer("receiver", 1, &[50.0, f64::NAN]),
        ],
    };
    snapshot("stacked", &chart.render().into_string());
}

#[test]
fn a_chart_without_data_draws_nothing() {
    for text in [
        LineChart::default().render(),
        Forest::default().render(),
        Cdf::default().render(),
        Strip::default().render(),
        Stacked::default().render(),
    ] {
        let text = text.into_string();
        assert!(text.starts_with("<svg") && !text.contains("NaN") && !text.contains("inf"));
    }
}

fn snapshot(name: &str, svg: &str) {
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    // One element per line, so that a diff shows the changed element.
    insta::assert_snapshot!(name, svg.replace("><", ">\n<"));
}

fn caption(title: &str) -> Caption {
    Caption {
        id: "chart".to_owned(),
        title: title.to_owned(),
        description: "Example data".to_owned(),
    }
}

fn line(name: &str, colour: usize, published: bool, values: &[f64]) -> ChartLine {
    let points = values.iter().enumerate().map(|(at, value)| Point {
        at,
        value: *value,
        interval: (!published).then_some([value * 0.9, value * 1.1]),
    });
    ChartLine { name: name.to_owned(), colour, published, points: points.collect() }
}
