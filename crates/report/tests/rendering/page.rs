use report::html;
use results::{Form, Results, Samples};

use crate::example_data::{HOSTILE, LAB_FILE, OBEYED, hostile, results, samples, series};

#[test]
fn the_page_is_well_formed() {
    balanced(&html::render(&results(), &samples(), &series(), LAB_FILE));
    balanced(&html::render(&hostile(), &Samples::new("x"), &[], HOSTILE));
    balanced(&html::render(&Results::new("empty", Form::Smoke), &Samples::new("x"), &[], ""));
}

#[test]
fn hostile_text_stays_text() {
    let mut series = series();
    series[0].system = HOSTILE.to_owned();
    series[0].name = HOSTILE.to_owned();
    series[0].lines[0].name = HOSTILE.to_owned();
    let mut samples = samples();
    samples.rows[0].system = HOSTILE.to_owned();
    let mut results = hostile();
    results.cells[0].axes = series[0].axes.clone();
    let page = html::render(&results, &samples, &series, HOSTILE);
    assert!(!page.contains("<script>alert"), "a script got through");
    assert_eq!(page.matches("<script").count(), 2, "only the page's own data and script");
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<!--"));
    assert!(!page.contains(OBEYED), "an escape sequence got through");
    balanced(&page);
}

#[test]
fn the_page_loads_nothing_from_the_network() {
    let page = html::render(&results(), &samples(), &series(), LAB_FILE);
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("unsafe-inline"));
    for (name, value) in attributes(&page) {
        let loads = matches!(name, "src" | "href" | "srcset" | "action" | "data" | "poster");
        assert!(!loads || value.starts_with('#'), "{name}={value}");
        assert!(!name.starts_with("on"), "an inline handler: {name}");
        assert!(name != "style", "the policy would refuse style={value}");
    }
    assert!(!page.contains("@import") && !page.contains("url("));
}

#[test]
fn embedded_series_can_be_read_back() {
    let page = html::render(&results(), &samples(), &series(), LAB_FILE);
    let start = page.find("id=\"series-data\">").unwrap() + "id=\"series-data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
    assert_eq!(data.as_array().unwrap().len(), series().len());
    assert_eq!(data[0]["lines"][0]["unit"], "Mbit/s");
    assert_eq!(data[0]["time"].as_array().unwrap().len(), 90);
    assert!(data[0]["lines"][0]["values"].as_array().unwrap().iter().any(|v| v.is_null()));
}

#[test]
fn every_identifier_is_unique_and_every_target_exists() {
    let page = html::render(&results(), &samples(), &series(), LAB_FILE);
    let all = attributes(&page);
    let mut ids: Vec<&str> = all.iter().filter(|(n, _)| *n == "id").map(|(_, v)| *v).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
    for (name, value) in &all {
        if *name == "aria-labelledby" {
            assert!(value.split(' ').all(|id| ids.contains(&id)), "{value}");
        } else if *name == "href" {
            assert!(ids.contains(&&value[1..]), "{value}");
        }
    }
}

#[test]
fn the_page_of_an_invalid_run_first_says_that_the_run_is_invalid() {
    let mut results = results();
    results.valid = false;
    results.invalid_reasons = vec!["the link was late".to_owned()];
    let page = html::render(&results, &samples(), &[], "");
    let warned = page.find("do not use these numbers").unwrap();
    assert!(warned < page.find("id=\"results\"").unwrap());
    assert!(page.contains("the link was late"));
}

/// Checks that every element is closed, in order.
pub(crate) fn balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag that ends");
        let tag = &rest[..end];
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
        } else if !VOID.contains(&name) && !name.starts_with('!') {
            open.push(name);
        }
        if tag == name && matches!(name, "script" | "style") || tag.starts_with("script ") {
            // The content of these elements is not markup, up to their end tag.
            rest = &rest[rest.find(&format!("</{name}")).expect("an end tag")..];
        } else {
            rest = &rest[end + 1..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Returns every attribute of every tag. Skips scripts and styles.
pub(crate) fn attributes(page: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').unwrap();
        let mut tag = &rest[..end];
        let raw = ["script", "style"].into_iter().find(|name| tag.starts_with(name));
        while let Some(equals) = tag.find("=\"") {
            let name = tag[..equals].rsplit([' ', '\n']).next().unwrap();
            let value = &tag[equals + 2..];
            let quote = value.find('"').unwrap();
            all.push((name, &value[..quote]));
            tag = &value[quote + 1..];
        }
        rest = match raw {
            Some(name) => &rest[rest.find(&format!("</{name}")).unwrap()..],
            None => &rest[end + 1..],
        };
    }
    all
}

const VOID: &[&str] = &["meta", "br", "link", "img", "input", "hr"];
