//! The page at `/` of the metrics listener: sessions, rates, round trips, loss and limits. The page
//! loads no other resource, runs no script and changes nothing; the browser reloads it every two
//! seconds.

use super::sessions::rate;
use super::text::memory;
use super::{AccountStatus, ConnectionStatus, Status};
use std::fmt::{Display, Write};
use units::{Bytes, Rate, Span, foreign, shown};

pub(super) fn page(status: &Status) -> String {
    let sessions: Vec<_> = status.alive().collect();
    let title = format!("weir tunnel {}", escaped(&status.role));
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"2\"><title>{title}</title>\
         <link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body><header><h1>{title}</h1>\
         <p>{}</p>{}</header>",
        escaped(facts(status)),
        warnings(status),
    );
    tiles(&mut html, status, &sessions);
    sessions_table(&mut html, &sessions);
    accounts_table(&mut html, &status.accounts);
    refusals(&mut html, status);
    html += "</body></html>";
    html
}

fn facts(status: &Status) -> String {
    let Status { version, pid, congestion, .. } = status;
    let up = Span::from_secs(status.up_seconds as u64).shown();
    let at = status.listens_on.join(", ");
    format!(
        "version {version}, pid {pid}, up {up}, congestion control {congestion}, listens on {at}"
    )
}

/// Returns the states that an operator should not overlook, such as a drain.
fn warnings(status: &Status) -> String {
    let mut all = Vec::new();
    if status.is_draining {
        let left = Span::from_secs(status.drain_seconds as u64).shown();
        all.push(format!("draining: no new sessions and tunnels, {left} left"));
    }
    if status.has_stalled {
        all.push("a thread has stalled".to_owned());
    }
    if status.certificate_is_due {
        all.push("the certificate expires within 30 days".to_owned());
    }
    if !status.reload_refused.is_empty() {
        all.push(format!("the last reload changed nothing: {}", status.reload_refused));
    }
    all.iter().map(|one| format!("<p class=\"warning\">{}</p>", escaped(one))).collect()
}

fn tiles(html: &mut String, status: &Status, sessions: &[&ConnectionStatus]) {
    let sum =
        |read: fn(&ConnectionStatus) -> u64| sessions.iter().map(|one| read(one)).sum::<u64>();
    let count = |name: &str| status.counters.get(name).copied().unwrap_or_default();
    let memory = format!("{} of {}", memory(status.memory_held), memory(status.memory_limit));
    let carried = format!(
        "{} in, {} out",
        Bytes::new(count("bytes_in")).shown(),
        Bytes::new(count("bytes_out")).shown()
    );
    html.push_str("<dl class=\"tiles\">");
    for (name, value) in [
        ("sessions", sessions.len().to_string()),
        ("tunnels", count("tunnels").to_string()),
        ("in/s", rate(sum(|one| one.rate_in))),
        ("out/s", rate(sum(|one| one.rate_out))),
        ("carried", carried),
        ("memory", memory),
    ] {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(value));
    }
    html.push_str("</dl>");
}

fn sessions_table(html: &mut String, sessions: &[&ConnectionStatus]) {
    html.push_str("<h2>Sessions</h2>");
    if sessions.is_empty() {
        html.push_str("<p>No session.</p>");
        return;
    }
    let row = |one: &&ConnectionStatus| -> Vec<String> {
        let paced = if one.pacing_rate == 0 { "none".to_owned() } else { rate(one.pacing_rate) };
        vec![
            one.session_name(),
            one.remote.clone(),
            one.carrier.clone(),
            Span::from_secs(one.seconds as u64).shown(),
            one.tunnels.to_string(),
            rate(one.rate_in),
            rate(one.rate_out),
            shown::seconds(one.rtt_seconds),
            shown::percent(one.loss_percent()),
            paced,
            one.limited_by.clone(),
        ]
    };
    let rows = sessions.iter().take(MOST_ROWS).map(row);
    table(html, &SESSION_HEADS, rows);
    more(html, sessions.len(), "weir tunnel sessions");
}

fn accounts_table(html: &mut String, accounts: &[AccountStatus]) {
    if accounts.is_empty() {
        return;
    }
    html.push_str("<h2>Identities</h2>");
    let row = |one: &AccountStatus| -> Vec<String> {
        let sessions = match one.sessions_limit {
            0 => one.sessions.to_string(),
            limit => format!("{} of {limit}", one.sessions),
        };
        let limit = match one.rate_limit {
            0 => "none".to_owned(),
            limit => Rate::from_bits_per_second(limit).shown(),
        };
        let quota = match one.quota {
            0 => "none".to_owned(),
            quota => format!(
                "{} of {} this {}",
                Bytes::new(one.quota_used).shown(),
                Bytes::new(quota).shown(),
                one.quota_period
            ),
        };
        vec![
            one.peer.clone(),
            sessions,
            Bytes::new(one.bytes_in).shown(),
            Bytes::new(one.bytes_out).shown(),
            rate(one.rate_in),
            rate(one.rate_out),
            limit,
            quota,
        ]
    };
    table(html, &ACCOUNT_HEADS, accounts.iter().take(MOST_ROWS).map(row));
    more(html, accounts.len(), "weir tunnel status --json");
}

fn refusals(html: &mut String, status: &Status) {
    let counters = TROUBLES.iter().filter_map(|name| {
        let count = status.counters.get(*name).copied()?;
        Some((name.replace('_', " "), count))
    });
    let rules = status.refused.iter().map(|(reason, count)| (format!("rules: {reason}"), *count));
    let rows: Vec<_> = counters
        .chain(rules)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| vec![name, count.to_string()])
        .collect();
    if !rows.is_empty() {
        html.push_str("<h2>Refused, reset and lost since the start</h2>");
        table(html, &["event", "count"], rows.into_iter());
    }
}

/// Writes a table. On a narrow screen each row becomes a card, whose cells name their column.
fn table(html: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    html.push_str("<table><thead><tr>");
    for head in heads {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (head, cell) in heads.iter().zip(row) {
            let _ = write!(html, "<td data-head=\"{head}\">{}</td>", escaped(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
}

fn more(html: &mut String, rows: usize, command: &str) {
    if rows > MOST_ROWS {
        let left = rows - MOST_ROWS;
        let _ = write!(html, "<p>{left} more: <code>{command}</code> lists all of them.</p>");
    }
}

/// Escapes a text for HTML, because peers choose some of the texts.
fn escaped(text: impl Display) -> String {
    let mut html = String::new();
    for one in foreign(text).up_to(LONGEST_TEXT).to_string().chars() {
        match one {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

const SESSION_HEADS: [&str; 11] = [
    "session",
    "remote",
    "carrier",
    "for",
    "tunnels",
    "in/s",
    "out/s",
    "RTT",
    "loss",
    "pacing",
    "limited by",
];
const ACCOUNT_HEADS: [&str; 8] =
    ["identity", "sessions", "in", "out", "in/s", "out/s", "rate limit", "quota"];
const TROUBLES: [&str; 11] = [
    "connections_failed",
    "connections_lost",
    "strangers",
    "tunnels_refused",
    "tunnels_over_limit",
    "tunnels_over_quota",
    "tunnels_reset",
    "tunnels_broken",
    "dials_failed",
    "datagrams_dropped",
    "access_lines_dropped",
];
/// Maximum number of rows: a browser draws this many without delay.
const MOST_ROWS: usize = 500;
const LONGEST_TEXT: usize = 1024;
const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--soft:#8882}\
body{font:15px/1.4 system-ui,sans-serif;margin:0 auto;max-width:1400px;padding:12px 16px}\
h1{font-size:1.3em;margin:0}h2{font-size:1.05em;margin:20px 0 6px}\
header p{margin:4px 0;overflow-wrap:anywhere}\
.warning{background:#b3001b;color:#fff;padding:6px 10px;border-radius:4px}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:8px;margin:12px 0}\
.tiles div{background:var(--soft);border-radius:4px;padding:8px 10px}\
dt{font-size:.85em}dd{margin:0;font-size:1.15em;font-variant-numeric:tabular-nums}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{text-align:left;padding:4px 8px;border-bottom:1px solid var(--line);overflow-wrap:anywhere}\
th{font-size:.85em}\
@media(max-width:900px){thead{display:none}tr{display:block;padding:6px 0;\
border-bottom:1px solid var(--line)}td{display:flex;justify-content:space-between;gap:16px;border:0;\
padding:2px 0}td::before{content:attr(data-head);opacity:.75;white-space:nowrap}}";

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;

    #[test]
    fn the_status_page_shows_sessions_and_limits_and_loads_no_resources() {
        let html = page(&status());
        for text in [
            "<h1>weir tunnel server</h1>",
            "<td data-head=\"RTT\">20.0 ms</td>",
            "<td data-head=\"loss\">1.00 %</td>",
            "<td data-head=\"rate limit\">50.0 Mbit/s</td>",
            "<td data-head=\"quota\">1.93 GB of 100 GB this month</td>",
            "<td data-head=\"event\">rules: not-listed</td>",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        for text in ["http:", "https:", "//", "src=", "<script", "@import", "url("] {
            assert!(!html.contains(text), "{text}: {html}");
        }
    }

    #[test]
    fn texts_of_peers_are_escaped_and_long_lists_are_bounded() {
        let mut status = status();
        let hostile = "<script>alert('x')</script>\"&\x1b\u{202e}";
        let one = &mut status.connections[0];
        (one.peer, one.remote) = (hostile.to_owned(), hostile.to_owned());
        (one.carrier, one.limited_by) = (hostile.to_owned(), hostile.to_owned());
        status.accounts[0].peer = hostile.to_owned();
        status.accounts[0].quota_period = hostile.to_owned();
        status.reload_refused = hostile.to_owned();
        (status.role, status.version) = (hostile.to_owned(), hostile.to_owned());
        status.listens_on = vec![hostile.to_owned()];
        status.refused.insert(hostile.to_owned(), 1);
        status.connections = vec![status.connections[0].clone(); 700];
        let html = page(&status);
        assert!(!html.contains("<script") && !html.contains(['\x1b', '\u{202e}']), "{html}");
        assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
        assert!(html.contains("<p>200 more: <code>weir tunnel sessions</code>"), "{html}");
        assert_eq!(html.matches("data-head=\"RTT\"").count(), MOST_ROWS);
    }
}
