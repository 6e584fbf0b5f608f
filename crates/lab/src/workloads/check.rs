//! Checks of a lab file that depend on its workload.

use super::WORKLOADS;
use crate::analysis::check::Bound;
use crate::bench::workload::{SystemKey, Workload};
use crate::model::file::{Document, FileError, Key, SHARED_KEYS, SystemKind, SystemSpec, axes};
use results::Axes;
use toml::Spanned;

/// Finds the workload of the file, and checks the names and types of its keys. If the workload has
/// an axis of its own and the file does not set this axis, the axis gets all its values.
pub(crate) fn bind(document: &mut Document) -> Result<&'static dyn Workload, FileError> {
    let table = document.workload.get_ref();
    let kinds: Vec<&str> = WORKLOADS.iter().map(|workload| workload.kind()).collect();
    let named = table.kind.get_ref();
    let Some(workload) = WORKLOADS.iter().find(|workload| workload.kind() == named) else {
        let message = unknown("value", named, &kinds);
        return Err(document.source.error(table.kind.span(), message));
    };
    let known: Vec<Key> = known_keys().collect();
    for (name, setting) in &table.settings {
        let Some(key) = known.iter().find(|key| key.name == name) else {
            let names: Vec<&str> = ["kind", "pin", "omit", "metrics"]
                .into_iter()
                .chain(known.iter().map(|key| key.name))
                .collect();
            let message = unknown("key", name, &names);
            document.refuse(setting.name.clone(), message)?;
            continue;
        };
        if let Some(message) = key.type_error(setting.value.get_ref()) {
            document.refuse(setting.value.span(), message)?;
        }
    }
    if let Some((axis, values)) = workload.own_axis(document) {
        let place = document.workload.span();
        let all = || {
            let values =
                values.into_iter().map(|value| Spanned::new(place.clone(), value.to_owned()));
            Spanned::new(place.clone(), values.collect())
        };
        document.axes.entry(axis.to_owned()).or_insert_with(all);
    }
    document.keeps_cells = workload.keeps_cells();
    Ok(*workload)
}

/// Checks everything that can be checked without touching the machine.
pub(crate) fn check(document: &Document, workload: &dyn Workload) -> Result<(), FileError> {
    let own_axis = workload.own_axis(document);
    let hosts = || match document.hosts.is_empty() && workload.has_hosts() {
        true => document.refuse(document.name.span(), "`hosts` is missing here"),
        false => document
            .check_hosts()
            .and_then(|()| document.check_middles())
            .and_then(|()| document.check_host_tables()),
    };
    let own_values = || {
        let Some((axis, known)) = &own_axis else { return Ok(()) };
        let Some(values) = document.axes.get(*axis) else { return Ok(()) };
        values.get_ref().iter().try_for_each(|value| document.known(axis, value, known))
    };
    // If a key is misspelt, the following checks would report the right key as missing.
    let keys_are_known = !document.source.has_mistakes();
    document.go_on(document.check_names())?;
    document.go_on(hosts())?;
    let ends_are_sound = !document.source.has_mistakes();
    document.go_on(own_values())?;
    document.go_on(document.check_axes())?;
    if keys_are_known {
        document.go_on(check_keys(document, workload))?;
        document.go_on(workload.check(document))?;
    }
    document.go_on(check_tables(document, workload))?;
    let before = document.source.count();
    document.go_on(document.check_words())?;
    let words_are_known = document.source.count() == before;
    document.go_on(document.check_omit(document.workload.get_ref().omit.as_ref()))?;
    for system in &document.system {
        document.go_on(check_system(document, workload, system.get_ref()))?;
    }
    document.go_on(document.check_forms())?;
    document.go_on(document.check_mentions())?;
    document.go_on(check_bounds(document))?;
    document.go_on(document.check_settings())?;
    // The checks below write out the axis values of all forms. `check_forms` refuses forms with
    // unknown names.
    let before = document.source.count();
    document.check_count()?;
    if document.source.count() > before || document.form.len() > MOST_FORMS {
        return Ok(());
    }
    document.go_on(document.check_state())?;
    // The check of cells reads everything checked so far, and would report the same mistakes a
    // second time.
    if document.source.has_mistakes() {
        if ends_are_sound && let Some(axes) = axes::all_places(document).first() {
            document.go_on(workload.ends(document, axes).map(drop))?;
        }
        // If an earlier check refused `[words]`, skip the links, because a link's setting may name
        // a refused word.
        return if words_are_known { check_links(document) } else { Ok(()) };
    }
    // The answer, the comparisons and the use of axes depend on many keys, some of which may be
    // unreadable.
    let is_whole = !document.source.has_losses();
    if is_whole {
        document.go_on(document.check_primary())?;
        document.go_on(document.check_answer(workload.has_means()))?;
    }
    document.go_on(check_cells(document, workload))?;
    match document.source.has_mistakes() || !is_whole {
        true => Ok(()),
        false => document.check_use_of_axes(own_axis.map(|(axis, _)| axis)),
    }
}

/// Adds the forms that a checked file leaves out.
pub(crate) fn add_short_forms(document: &mut Document, workload: &dyn Workload) {
    document.add_short_forms(|document, form| {
        axes::places(document, form).iter().all(|axes| {
            workload.at(document, axes).is_ok() && workload.check_form(document, form, axes).is_ok()
        })
    });
}

/// Checks only the settings of links, which depend only on the axes.
fn check_links(document: &Document) -> Result<(), FileError> {
    let places = axes::all_places(document);
    let others = axes::of_other_values(document, &places);
    for axes in places.iter().chain(&others) {
        document.check_links_at(axes)?;
    }
    Ok(())
}

/// Checks every cell of every form before the run, so that a bad value does not fail after ten
/// minutes.
fn check_cells(document: &Document, workload: &dyn Workload) -> Result<(), FileError> {
    let places = axes::all_places(document);
    // A later run may choose a value that no form chooses, so check all values of the axes.
    for axes in axes::of_other_values(document, &places) {
        document.go_on(document.links_at(&axes).map(drop))?;
        document.go_on(document.disturbance_at(&axes).map(drop))?;
    }
    for axes in places {
        document.go_on(document.disturbance_at(&axes).map(drop))?;
        let links = document.links_at(&axes).map(drop);
        document.go_on(links.and_then(|()| {
            let cell = workload.at(document, &axes)?;
            match cell.between_machines() {
                Err(reason) if document.has_real_hosts() => {
                    let message = format!(
                        "`{}` does not run between real machines: {reason}, or remove the `[host.NAME]` tables to run \
                         the lab in namespaces of this machine",
                        workload.kind()
                    );
                    document.refuse(document.workload.get_ref().kind.span(), message)
                }
                _ => Ok(()),
            }
        }))?;
    }
    for form in document.form.values() {
        let places: Vec<Axes> = axes::places(document, form);
        places.iter().try_for_each(|axes| workload.check_form(document, form, axes))?;
    }
    Ok(())
}

/// Checks the syntax of bounds. A bound may name cells that only one form measures.
fn check_bounds(document: &Document) -> Result<(), FileError> {
    for bound in &document.bounds {
        if let Err(message) = Bound::read(bound.get_ref()) {
            document.refuse(bound.span(), format!("`{}`: {message}", bound.get_ref()))?;
        }
    }
    Ok(())
}

/// Refuses the keys of other workloads.
fn check_keys(document: &Document, workload: &dyn Workload) -> Result<(), FileError> {
    for (name, setting) in &document.workload.get_ref().settings {
        let has = |workload: &dyn Workload| workload.keys().iter().any(|key| key.name == name);
        if !has(workload) && !SHARED_KEYS.iter().any(|key| key.name == name) {
            let message = format!("`{name}` is for workloads of {}", kinds_that(has));
            document.refuse(setting.value.span(), message)?;
        }
    }
    Ok(())
}

fn check_tables(document: &Document, workload: &dyn Workload) -> Result<(), FileError> {
    document.go_on(document.check_figures())?;
    if let Some((name, _)) = document.workload.get_ref().metrics.first()
        && !workload.system_keys().contains(&SystemKey::Commands)
    {
        return document.refuse(name.span(), "`metrics` is for workloads of `kind = \"command\"`");
    }
    if workload.has_network() {
        return Ok(());
    }
    let kinds = kinds_that(|workload| workload.has_network());
    if let Some(topology) = &document.topology {
        let message = format!("`[topology]` is for workloads of {kinds}");
        return document.refuse(topology.span(), message);
    }
    if let Some(tcp) = &document.tcp {
        let message =
            format!("`[tcp]` is for workloads of {kinds}: a kernel's TCP is set by `[sysctl]`");
        return document.refuse(tcp.span(), message);
    }
    Ok(())
}

fn check_system(
    document: &Document,
    workload: &dyn Workload,
    system: &SystemSpec,
) -> Result<(), FileError> {
    let name = system.name();
    let takes = |workload: &dyn Workload, kind: &SystemKind| workload.systems().contains(kind);
    let own = [
        (SystemKind::Link, "link"),
        (SystemKind::Model, "model"),
        (SystemKind::Doctor, "doctor"),
        (SystemKind::Switch, "switch"),
    ];
    for (kind, word) in own {
        if takes(workload, &kind) != (system.kind == kind) {
            let of = WORKLOADS.iter().find(|workload| takes(**workload, &kind));
            let of = of.map_or("", |workload| workload.kind());
            let message = format!(
                "system `{name}`: `kind = \"{word}\"` and the workload `{of}` belong together"
            );
            return document.refuse(system.name.span(), message);
        }
    }
    if system.kind == SystemKind::Tunnel {
        check_tunnel(document, workload, system)?;
    } else if !takes(workload, &system.kind) {
        let message = format!(
            "system `{name}`: a workload `{}` takes only systems of `kind = \"tcp\"`",
            workload.kind()
        );
        return document.refuse(system.name.span(), message);
    }
    let reads = |key: SystemKey| workload.system_keys().contains(&key);
    let kinds = |key: SystemKey| kinds_that(|workload| workload.system_keys().contains(&key));
    if let Some(warm) = system.warm.as_ref().filter(|_| !reads(SystemKey::Warm)) {
        let message = format!("`warm` is for workloads of {}", kinds(SystemKey::Warm));
        return document.refuse(warm.span(), message);
    }
    check_start(document, workload, system)?;
    if system.kind != SystemKind::Tunnel {
        document.check_congestion(system)?;
    }
    let own = [("queue", SystemKey::Queue, &system.queue), ("caqm", SystemKey::Caqm, &system.caqm)];
    for (word, key, text) in own {
        if let Some(text) = text.as_ref().filter(|_| !reads(key)) {
            let message = format!("a system's `{word}` is for workloads of {}", kinds(key));
            return document.refuse(text.span(), message);
        }
    }
    let of_caqm = system.kind == SystemKind::Tcp
        && system.congestion.as_ref().is_some_and(|name| name.get_ref() == "caqm");
    if let Some(text) = system.caqm.as_ref().filter(|_| !of_caqm) {
        let message = "`caqm` is for systems with `congestion = \"caqm\"`";
        return document.refuse(text.span(), message);
    }
    if let Some(traffic) = system.traffic.as_ref().filter(|_| !reads(SystemKey::Traffic)) {
        let message = "`traffic` is for `bulk` workloads: this one makes its own";
        return document.refuse(traffic.span(), message);
    }
    document.go_on(document.check_changes(system))?;
    document.check_kind(system, reads(SystemKey::Commands))
}

/// Checks a system's `warmed_at` and `first_window`.
fn check_start(
    document: &Document,
    workload: &dyn Workload,
    system: &SystemSpec,
) -> Result<(), FileError> {
    let places = [
        ("warmed_at", system.warmed_at.as_ref().map(Spanned::span)),
        ("first_window", system.first_window.as_ref().map(Spanned::span)),
    ];
    let reads = |workload: &dyn Workload| workload.system_keys().contains(&SystemKey::Start);
    for (word, place) in places {
        if let Some(place) = place.filter(|_| !reads(workload)) {
            let message = format!("`{word}` is for workloads of {}", kinds_that(reads));
            return document.refuse(place, message);
        }
    }
    if let Some(written) = &system.warmed_at {
        if !system.is_warm() {
            let message = "`warmed_at` is for systems with `warm = true`";
            return document.refuse(written.span(), message);
        }
        if let Err(message) = system.warmed_at() {
            return document.refuse(written.span(), message);
        }
    }
    match &system.first_window {
        Some(segments) if !(1..=1000).contains(segments.get_ref()) => {
            document.refuse(segments.span(), "`first_window` is from 1 to 1000 segments")
        }
        _ => Ok(()),
    }
}

/// Checks the keys of a system of the kind `tunnel`, which runs in virtual time.
fn check_tunnel(
    document: &Document,
    workload: &dyn Workload,
    system: &SystemSpec,
) -> Result<(), FileError> {
    let name = system.name();
    let takes = |workload: &dyn Workload| workload.systems().contains(&SystemKind::Tunnel);
    if !takes(workload) {
        let message = format!(
            "system `{name}`: `kind = \"tunnel\"` is for workloads of {}",
            kinds_that(takes)
        );
        return document.refuse(system.name.span(), message);
    }
    let Some(congestion) = &system.congestion else {
        let message = format!(
            "system `{name}` names no congestion control: add `congestion = \"tcpa\"` or another"
        );
        return document.refuse(system.name.span(), message);
    };
    if let Err(error) = congestion.get_ref().parse::<sim::Congestion>() {
        return document.refuse(congestion.span(), error.to_string());
    }
    if let Some(warm) = &system.warm {
        return document.refuse(warm.span(), "`warm` is for systems of `kind = \"tcp\"`");
    }
    Ok(())
}

/// Returns each key of any workload, once.
fn known_keys() -> impl Iterator<Item = Key> {
    let mut known = SHARED_KEYS.to_vec();
    for key in WORKLOADS.iter().flat_map(|workload| workload.keys()) {
        if !known.iter().any(|known| known.name == key.name) {
            known.push(*key);
        }
    }
    known.into_iter()
}

/// Lists the workloads for which `test` holds: `kind = "a"`, `"b"` or `"c"`.
fn kinds_that(test: impl Fn(&dyn Workload) -> bool) -> String {
    let kinds = WORKLOADS.iter().filter(|workload| test(**workload));
    let kinds: Vec<String> = kinds.map(|workload| format!("\"{}\"", workload.kind())).collect();
    let Some((first, rest)) = kinds.split_first() else { return "no kind".to_owned() };
    let rest: Vec<String> = rest.iter().map(|kind| format!("`{kind}`")).collect();
    match rest.split_last() {
        None => format!("`kind = {first}`"),
        Some((last, [])) => format!("`kind = {first}` or {last}"),
        Some((last, middle)) => format!("`kind = {first}`, {} or {last}", middle.join(", ")),
    }
}

fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match units::did_you_mean(word, known.iter().copied()) {
        hint if hint.is_empty() => {
            format!("unknown {what} `{word}`: one of {} is meant here", known.join(", "))
        }
        hint => format!("unknown {what} `{word}`{hint}"),
    }
}

/// Maximum number of forms whose combinations are written out while all mistakes are collected.
const MOST_FORMS: usize = 10;
