use std::fmt::Write;

use flow::action::{
    Action, Bundle, Controller, Ct, CtZone, HashFields, Learn, LearnDestination, LearnSource,
    LearnSpec, Multipath, Nat, NatAddresses, NatDirection, Sample, SampleDirection, Subfield,
};
use flow::port_number::PortNumber;

use super::parse::REASONS;
use super::plain;
use super::select::{ALGORITHMS, HASH_FIELDS};
use crate::address::print_ipv6;
use crate::port::{PortNames, print_port};
use crate::subfield::print_subfield;
use crate::value::{bits, bytes, print_hexadecimal, print_value, written};

#[must_use]
pub fn print_actions(actions: &[Action]) -> String {
    print_actions_with(actions, &PortNames::none())
}

#[must_use]
pub fn print_actions_with(actions: &[Action], names: &PortNames) -> String {
    let mut out = String::new();
    write_actions(&mut out, actions, names);
    out
}

pub(crate) fn write_actions(out: &mut String, actions: &[Action], names: &PortNames) {
    if actions.is_empty() {
        out.push_str("drop");
    }
    for (index, action) in actions.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_action(out, action, names);
    }
}

fn write_action(out: &mut String, action: &Action, names: &PortNames) {
    // Writing to a `String` never fails.
    let _ = match action {
        Action::Output { port, max_len } => {
            if !port.is_reserved() {
                out.push_str("output:");
            }
            print_port(out, *port, names);
            if *port == PortNumber::CONTROLLER {
                let _ = write!(out, ":{max_len}");
            }
            Ok(())
        }
        Action::OutputRegister { source, .. } => part(out, "output:", *source),
        Action::OutputTruncated { port, max_len } => {
            out.push_str("output(port=");
            print_port(out, *port, names);
            write!(out, ",max_len={max_len})")
        }
        Action::Controller(controller) => write_controller(out, controller),
        Action::Enqueue { port, queue } => {
            out.push_str("enqueue:");
            print_port(out, *port, names);
            write!(out, ":{queue}")
        }
        Action::SetField { field, value, mask } => {
            let (value, mask) = written(*field, *value, *mask);
            out.push_str("set_field:");
            print_value(out, *field, value, mask, names);
            write!(out, "->{}", field.name())
        }
        Action::Load { destination, value } => write_load(out, *destination, *value),
        Action::Move { source, destination } => {
            let _ = part(out, "move:", *source);
            part(out, "->", *destination)
        }
        Action::StackPush(source) => part(out, "push:", *source),
        Action::StackPop(destination) => part(out, "pop:", *destination),
        Action::DecTtl(controllers) => write_dec_ttl(out, controllers),
        Action::SetTunnel(id) => {
            let suffix = if *id > u64::from(u32::MAX) { "64" } else { "" };
            write!(out, "set_tunnel{suffix}:").and_then(|()| alternate(out, (*id).into()))
        }
        Action::Resubmit { port, table, with_ct } => {
            write_resubmit(out, *port, *table, *with_ct, names)
        }
        Action::Learn(learn) => write_learn(out, learn, names),
        Action::Conjunction { id, clause, clauses } => {
            write!(out, "conjunction({id},{}/{clauses})", u16::from(*clause) + 1)
        }
        Action::Multipath(multipath) => write_multipath(out, multipath),
        Action::Bundle(bundle) => write_bundle(out, bundle, names),
        Action::Note(bytes) => {
            out.push_str("note:");
            write_bytes(out, bytes)
        }
        Action::Sample(sample) => write_sample(out, sample, names),
        Action::Ct(ct) => write_ct(out, ct, names),
        Action::CheckPacketLarger { destination, length } => {
            let _ = write!(out, "check_pkt_larger({length})");
            part(out, "->", *destination)
        }
        Action::Clone(actions) => nested(out, "clone(", actions, names),
        Action::WriteActions(actions) => nested(out, "write_actions(", actions, names),
        Action::WriteMetadata { value, mask } => {
            out.push_str("write_metadata:");
            let _ = alternate(out, (*value).into());
            if *mask == u64::MAX {
                Ok(())
            } else {
                out.push('/');
                alternate(out, (*mask).into())
            }
        }
        Action::GotoTable(table) => write!(out, "goto_table:{table}"),
        _ => plain::write(out, action.row(), action.numbers()),
    };
}

/// Prints a number as C's `%#x` does: zero has no prefix.
fn alternate(out: &mut String, value: u128) -> std::fmt::Result {
    print_hexadecimal(out, value);
    Ok(())
}

fn part(out: &mut String, before: &str, part: Subfield) -> std::fmt::Result {
    out.push_str(before);
    print_subfield(out, part);
    Ok(())
}

fn nested(
    out: &mut String,
    before: &str,
    actions: &[Action],
    names: &PortNames,
) -> std::fmt::Result {
    out.push_str(before);
    write_actions(out, actions, names);
    out.write_char(')')
}

fn write_bytes(out: &mut String, bytes: &[u8]) -> std::fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push('.');
        }
        write!(out, "{byte:02x}")?;
    }
    Ok(())
}

/// Replaces the comma after the last part by a closing parenthesis.
pub(super) fn close(out: &mut String) -> std::fmt::Result {
    if out.ends_with(',') {
        out.pop();
    }
    out.write_char(')')
}

fn write_controller(out: &mut String, controller: &Controller) -> std::fmt::Result {
    let Controller { max_len, id, reason, userdata, pause, meter } = controller;
    out.push_str("controller(");
    if *reason != 1 {
        match REASONS.get(usize::from(*reason)) {
            Some(name) => write!(out, "reason={name},")?,
            None => write!(out, "reason={reason},")?,
        }
    }
    if *max_len != u16::MAX {
        write!(out, "max_len={max_len},")?;
    }
    if *id != 0 {
        write!(out, "id={id},")?;
    }
    if !userdata.is_empty() {
        out.push_str("userdata=");
        write_bytes(out, userdata)?;
        out.push(',');
    }
    if *pause {
        out.push_str("pause,");
    }
    if let Some(meter) = meter {
        write!(out, "meter_id={meter},")?;
    }
    close(out)
}

/// Prints a load. A load of more than 64 bits is printed as several loads, because Open vSwitch
/// loads at most 64 bits at once.
fn write_load(out: &mut String, destination: Subfield, value: u128) -> std::fmt::Result {
    let mut start = destination.start;
    let mut left = destination.width;
    let mut value = value;
    while left > 0 {
        let width = left.min(64);
        if start > destination.start {
            out.push(',');
        }
        write!(out, "load:")?;
        alternate(out, value & (u128::MAX >> (128 - u32::from(width))))?;
        part(out, "->", Subfield { field: destination.field, start, width })?;
        value = value.checked_shr(width.into()).unwrap_or(0);
        start += width;
        left -= width;
    }
    Ok(())
}

fn write_dec_ttl(out: &mut String, controllers: &[u16]) -> std::fmt::Result {
    out.push_str("dec_ttl");
    if controllers == [0] {
        return Ok(());
    }
    out.push('(');
    for id in controllers {
        write!(out, "{id},")?;
    }
    close(out)
}

fn write_resubmit(
    out: &mut String,
    port: Option<PortNumber>,
    table: Option<u8>,
    with_ct: bool,
    names: &PortNames,
) -> std::fmt::Result {
    if let (Some(port), None) = (port, table) {
        out.push_str("resubmit:");
        print_port(out, port, names);
        return Ok(());
    }
    out.push_str("resubmit(");
    if let Some(port) = port {
        print_port(out, port, names);
    }
    out.push(',');
    if let Some(table) = table {
        write!(out, "{table}")?;
    }
    out.push_str(if with_ct { ",ct)" } else { ")" });
    Ok(())
}

fn write_learn(out: &mut String, learn: &Learn, names: &PortNames) -> std::fmt::Result {
    write!(out, "learn(table={}", learn.table)?;
    let timeouts = [
        ("idle_timeout", learn.idle_timeout),
        ("hard_timeout", learn.hard_timeout),
        ("fin_idle_timeout", learn.fin_idle_timeout),
        ("fin_hard_timeout", learn.fin_hard_timeout),
    ];
    for (name, timeout) in timeouts.into_iter().filter(|(_, timeout)| *timeout != 0) {
        write!(out, ",{name}={timeout}")?;
    }
    if learn.priority != 0x8000 {
        write!(out, ",priority={}", learn.priority)?;
    }
    if learn.send_flow_removed {
        out.push_str(",send_flow_rem");
    }
    if learn.delete_learned {
        out.push_str(",delete_learned");
    }
    if learn.cookie != 0 {
        write!(out, ",cookie={:#x}", learn.cookie)?;
    }
    if learn.limit != 0 {
        write!(out, ",limit={}", learn.limit)?;
    }
    if let Some(result) = learn.result {
        part(out, ",result_dst=", result)?;
    }
    for spec in &learn.specs {
        out.push(',');
        write_spec(out, spec, names)?;
    }
    out.write_char(')')
}

fn write_spec(out: &mut String, spec: &LearnSpec, names: &PortNames) -> std::fmt::Result {
    match (&spec.source, &spec.destination) {
        (LearnSource::Value(value), LearnDestination::Match(to)) => {
            if to.start == 0 && to.width >= bits(to.field) {
                write!(out, "{}=", to.field.name())?;
                let ones = u128::MAX >> (128 - u32::from(bytes(to.field)) * 8);
                print_value(out, to.field, *value, ones, names);
            } else {
                part(out, "", *to)?;
                out.push('=');
                print_hexadecimal(out, *value);
            }
        }
        (LearnSource::Field(from), LearnDestination::Match(to)) => {
            part(out, "", *to)?;
            if from.field != to.field || from.start != to.start {
                part(out, "=", *from)?;
            }
        }
        (LearnSource::Value(value), LearnDestination::Load(to)) => {
            out.push_str("load:");
            print_hexadecimal(out, *value);
            part(out, "->", *to)?;
        }
        (LearnSource::Field(from), LearnDestination::Load(to)) => {
            part(out, "load:", *from)?;
            part(out, "->", *to)?;
        }
        (LearnSource::Field(from), LearnDestination::Output) => part(out, "output:", *from)?,
        (LearnSource::Value(value), LearnDestination::Output) => {
            out.push_str("output:");
            print_hexadecimal(out, *value);
        }
    }
    Ok(())
}

fn hash_fields(fields: HashFields) -> &'static str {
    HASH_FIELDS.iter().find(|(_, known)| *known == fields).map_or("", |(name, _)| name)
}

fn write_multipath(out: &mut String, multipath: &Multipath) -> std::fmt::Result {
    let found = ALGORITHMS.iter().find(|(_, known)| *known == multipath.algorithm);
    write!(
        out,
        "multipath({},{},{},{},{},",
        hash_fields(multipath.fields),
        multipath.basis,
        found.map_or("", |(name, _)| name),
        u32::from(multipath.max_link) + 1,
        multipath.argument
    )?;
    part(out, "", multipath.destination)?;
    out.write_char(')')
}

fn write_bundle(out: &mut String, bundle: &Bundle, names: &PortNames) -> std::fmt::Result {
    let action = if bundle.destination.is_some() { "bundle_load" } else { "bundle" };
    let algorithm = if bundle.highest_random_weight { "hrw" } else { "active_backup" };
    let fields = hash_fields(bundle.fields);
    write!(out, "{action}({fields},{},{algorithm},ofport,", bundle.basis)?;
    if let Some(destination) = bundle.destination {
        part(out, "", destination)?;
        out.push(',');
    }
    out.push_str("members:");
    for (index, member) in bundle.members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        print_port(out, *member, names);
    }
    out.write_char(')')
}

fn write_sample(out: &mut String, sample: &Sample, names: &PortNames) -> std::fmt::Result {
    write!(
        out,
        "sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={}",
        sample.probability,
        sample.collector_set,
        sample.observation_domain,
        sample.observation_point
    )?;
    if let Some(port) = sample.sampling_port {
        out.push_str(",sampling_port=");
        print_port(out, port, names);
    }
    out.push_str(match sample.direction {
        SampleDirection::Default => ")",
        SampleDirection::Ingress => ",ingress)",
        SampleDirection::Egress => ",egress)",
    });
    Ok(())
}

fn write_ct(out: &mut String, ct: &Ct, names: &PortNames) -> std::fmt::Result {
    out.push_str("ct(");
    if ct.commit {
        out.push_str("commit,");
    }
    if ct.force {
        out.push_str("force,");
    }
    if let Some(table) = ct.table {
        write!(out, "table={table},")?;
    }
    match ct.zone {
        CtZone::Number(0) => {}
        CtZone::Number(zone) => write!(out, "zone={zone},")?,
        CtZone::From(source) => {
            part(out, "zone=", source)?;
            out.push(',');
        }
    }
    if let Some(nat) = &ct.nat {
        write_nat(out, nat)?;
        out.push(',');
    }
    if !ct.exec.is_empty() {
        nested(out, "exec(", &ct.exec, names)?;
        out.push(',');
    }
    match ct.alg {
        0 => {}
        21 => out.push_str("alg=ftp,"),
        69 => out.push_str("alg=tftp,"),
        port => write!(out, "alg={port},")?,
    }
    close(out)
}

/// Prints `nat(src=10.0.0.1-10.0.0.9:1000-2000,random)`.
pub(crate) fn write_nat(out: &mut String, nat: &Nat) -> std::fmt::Result {
    out.push_str("nat");
    let Some(direction) = nat.direction else { return Ok(()) };
    out.push_str(if direction == NatDirection::Source { "(src" } else { "(dst" });
    // Without addresses, Open vSwitch omits the options.
    let Some(addresses) = &nat.addresses else { return close(out) };
    out.push('=');
    match addresses {
        NatAddresses::V4(range) => {
            write!(out, "{}", range.start())?;
            if range.end() != range.start() && !range.end().is_unspecified() {
                write!(out, "-{}", range.end())?;
            }
        }
        NatAddresses::V6(range) => {
            let brackets = nat.ports.is_some();
            bracketed(out, (*range.start()).into(), brackets);
            if range.end() != range.start() && !range.end().is_unspecified() {
                out.push('-');
                bracketed(out, (*range.end()).into(), brackets);
            }
        }
    }
    if let Some(ports) = &nat.ports {
        write!(out, ":{}", ports.start())?;
        if ports.end() != ports.start() {
            write!(out, "-{}", ports.end())?;
        }
    }
    out.push(',');
    for (is_set, name) in
        [(nat.persistent, "persistent,"), (nat.hash, "hash,"), (nat.random, "random,")]
    {
        if is_set {
            out.push_str(name);
        }
    }
    close(out)
}

fn bracketed(out: &mut String, address: u128, brackets: bool) {
    if brackets {
        out.push('[');
    }
    print_ipv6(out, address);
    if brackets {
        out.push(']');
    }
}
