use std::collections::BTreeMap;

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::TABLES;
use flow::request::{Bridge, CookieFilter, FlowEntry, FlowFilter, FlowMod, Flows, Refusal};

use super::Version;
use super::action::{encode_actions, encode_instructions};
use super::asynchronous::FlowRemovedReason;
use super::message::{ONF, begin_experimenter, begin_nicira_message, end_message};
use super::multipart::{Multipart, Part};
use super::octets::{Put, Reader};
use super::oxm_match::{read_entries, read_match, write_entries, write_match};
use super::reply::{Form, Reply};

/// A change of a bridge's rules, for monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowChange {
    Added,
    Modified,
    Deleted(FlowRemovedReason),
}

/// A changed rule, for monitors.
#[derive(Debug, Clone, Copy)]
pub struct FlowUpdate<'a> {
    pub change: FlowChange,
    pub flow: &'a FlowEntry,
    /// The actions before the change. A monitor of a port also gets a rule whose new actions no
    /// longer output to that port.
    pub former: &'a [Action],
}

/// The monitors of a connection, by the numbers that the controller chose.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    monitors: BTreeMap<u32, Monitor>,
    /// The number of the latest change that the peer may know.
    seen: u64,
    /// The value of `seen` when the pause began, while monitors are paused because the peer reads
    /// too slowly. During the pause, the peer gets only removals of rules. All other changes follow
    /// after the peer has read the earlier output.
    paused: Option<u64>,
    /// Whether a reply lists the rules as they were at `seen`. Later changes of rules are held
    /// back.
    is_replying: bool,
    /// The number of the latest change when the last reply to a request began.
    listed: u64,
    /// Whether updates were held back since the pause began, or since the last resumption.
    is_behind: bool,
}

#[derive(Debug)]
struct Monitor {
    /// The flags, numbered as in OpenFlow 1.4.
    flags: u16,
    filter: FlowFilter,
}

impl Monitors {
    /// Handles the requests of a message, and begins a reply with the rules that new monitors ask
    /// for.
    pub(super) fn request(
        &mut self,
        mut body: Reader<'_>,
        version: Version,
        xid: u32,
        bridge: &mut dyn Bridge,
    ) -> Result<Reply, Refusal> {
        let mut requests = Vec::new();
        while !body.is_empty() {
            requests.push(decode(&mut body, version)?);
        }
        let mut new = Vec::new();
        let flows = self.begin(requests, &mut new).and_then(|()| {
            if !new.is_empty() {
                // Record changes before the rules are listed: a packet may add a rule right after
                // the listing.
                bridge.watch();
            }
            let monitors: Vec<_> = new.iter().filter_map(|id| self.monitors.get(id)).collect();
            rules(bridge, &monitors, None)
        });
        let flows = flows.inspect_err(|_| {
            // A refused message must begin no monitor, because after the refusal the peer assumes
            // that no monitor exists.
            self.monitors.retain(|id, _| !new.contains(id));
        })?;
        self.listed = self.listed.max(flows.newest());
        self.seen = self.seen.max(self.listed);
        self.is_replying = true;
        Ok(Reply::new(version, xid, part(version), flows, Form::Initial(new)))
    }

    /// Begins monitors, whose numbers are added to `new`, and cancels other monitors.
    fn begin(
        &mut self,
        requests: Vec<(u32, Option<Monitor>)>,
        new: &mut Vec<u32>,
    ) -> Result<(), Refusal> {
        for (id, monitor) in requests {
            let Some(monitor) = monitor else {
                self.cancel(id)?;
                continue;
            };
            if self.monitors.contains_key(&id) {
                return Err(Refusal::MonitorExists);
            }
            if self.monitors.len() >= MAX_MONITORS {
                return Err(Refusal::NotPermitted);
            }
            self.monitors.insert(id, monitor);
            new.push(id);
        }
        Ok(())
    }

    /// Writes a rule in the reply to the request that began the monitors `ids`. Writes nothing if
    /// the rule was removed meanwhile, because the peer already got the removal.
    pub(super) fn initial(
        &self,
        ids: &[u32],
        flow: &FlowEntry,
        bridge: &dyn Bridge,
        version: Version,
        reply: &mut Multipart<'_>,
    ) {
        // A rule that several monitors select is written once.
        let monitors = ids.iter().filter_map(|id| self.monitors.get(id));
        let selecting = monitors.filter(|monitor| selects(&monitor.filter, flow, &[]));
        let flags = selecting.map(|monitor| monitor.flags).filter(|flags| flags & INITIAL != 0);
        if let Some(flags) = flags.reduce(|all, flags| all | flags)
            && bridge.has_flow(flow)
        {
            reply.entry(|out| {
                encode_update(flow, Event::Initial, flags & ACTIONS != 0, version, out);
            });
        }
    }

    /// Ends a reply. After a reply with held-back changes, the pause ends unless there are further
    /// changes.
    pub(super) fn replied(&mut self, is_of_changes: bool, version: Version, out: &mut Vec<u8>) {
        self.is_replying = false;
        if is_of_changes && !self.is_behind {
            self.paused = None;
            encode_pause(false, version, out);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.monitors.is_empty()
    }

    pub(super) fn cancel(&mut self, id: u32) -> Result<(), Refusal> {
        self.monitors.remove(&id).map(|_| ()).ok_or(Refusal::UnknownMonitor)
    }

    /// Writes the changes that monitors ask for. `own`: the number of this connection's request, if
    /// that request made the changes. As in Open vSwitch, the peer then gets only the number,
    /// unless a monitor asks for full updates.
    pub(super) fn changed(
        &mut self,
        updates: &[FlowUpdate<'_>],
        own: Option<u32>,
        version: Version,
        out: &mut Vec<u8>,
    ) {
        let is_new = |update: &FlowUpdate<'_>| {
            !matches!(update.change, FlowChange::Deleted(_)) && update.flow.changed > self.seen
        };
        if self.is_replying && updates.iter().any(is_new) {
            self.pause(version, out);
        }
        let newest = updates.iter().map(|update| update.flow.changed).max();
        self.seen = self.seen.max(newest.unwrap_or(0));
        let mut lines = Vec::new();
        let mut is_abbreviated = false;
        for update in updates {
            let Some(flags) = self.flags(update) else { continue };
            let is_whole = match self.paused {
                // The peer does not know rules that were added during the pause and not listed
                // since, so their removals are not sent. A change from before the pause is sent now
                // if a reply is being written, because the resumption will not list it.
                Some(paused) => {
                    let is_told = match update.change {
                        FlowChange::Deleted(_) => update.flow.added <= paused.max(self.listed),
                        _ => self.is_replying && update.flow.changed <= paused,
                    };
                    if !is_told {
                        self.is_behind = true;
                        continue;
                    }
                    true
                }
                None => own.is_none() || flags & WHOLE != 0,
            };
            if is_whole || !is_abbreviated {
                lines.push((update, flags, is_whole));
            }
            is_abbreviated |= !is_whole;
        }
        if lines.is_empty() {
            return;
        }
        let mut reply = Multipart::new(version, 0, part(version), out);
        for (update, flags, is_whole) in lines {
            reply.entry(|out| match own {
                Some(xid) if !is_whole => {
                    out.put_u16(8);
                    out.put_u16(if version >= Version::V14 { 4 } else { 3 });
                    out.put_u32(xid);
                }
                _ => {
                    let event = match update.change {
                        FlowChange::Added => Event::Added,
                        FlowChange::Modified => Event::Modified,
                        FlowChange::Deleted(reason) => Event::Deleted(reason),
                    };
                    encode_update(update.flow, event, flags & ACTIONS != 0, version, out);
                }
            });
        }
        reply.finish();
    }

    /// Pauses all updates except removals, and tells the peer about the pause.
    pub(super) fn pause(&mut self, version: Version, out: &mut Vec<u8>) {
        if self.paused.is_none() && !self.is_empty() {
            self.paused = Some(self.seen);
            encode_pause(true, version, out);
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Begins a reply with the changes since the pause began.
    pub(super) fn resume(&mut self, version: Version, bridge: &dyn Bridge) -> Option<Reply> {
        let since = self.paused?;
        let monitors: Vec<_> = self.monitors.values().collect();
        let flows = rules(bridge, &monitors, Some(since)).unwrap_or_else(|_| Vec::new().into());
        self.seen = self.seen.max(flows.newest());
        self.paused = Some(self.seen);
        self.is_behind = false;
        self.is_replying = true;
        Some(Reply::new(version, 0, part(version), flows, Form::Changes(since)))
    }

    /// Writes a rule that was added or changed during the pause that began at `since`. Writes
    /// nothing if the rule was removed meanwhile, because the peer already got the removal.
    pub(super) fn held_back(
        &self,
        since: u64,
        flow: &FlowEntry,
        bridge: &dyn Bridge,
        version: Version,
        reply: &mut Multipart<'_>,
    ) {
        let is_new = flow.added > since;
        let (flag, event) = if is_new { (ADD, Event::Added) } else { (MODIFY, Event::Modified) };
        let taking = self.monitors.values().filter(|monitor| monitor.flags & flag != 0);
        let taking = taking.filter(|monitor| selects(&monitor.filter, flow, &[]));
        if let Some(flags) = taking.map(|monitor| monitor.flags).reduce(|all, flags| all | flags)
            && bridge.has_flow(flow)
        {
            reply.entry(|out| encode_update(flow, event, flags & ACTIONS != 0, version, out));
        }
    }

    /// Returns the combined flags of all monitors that ask for a change; `None` if no monitor asks
    /// for the change.
    fn flags(&self, update: &FlowUpdate<'_>) -> Option<u16> {
        let flag = match update.change {
            FlowChange::Added => ADD,
            FlowChange::Modified => MODIFY,
            FlowChange::Deleted(_) => DELETE,
        };
        let takes = |monitor: &&Monitor| {
            monitor.flags & flag != 0 && selects(&monitor.filter, update.flow, update.former)
        };
        let flags = self.monitors.values().filter(takes).map(|monitor| monitor.flags);
        flags.reduce(|all, flags| all | flags)
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Initial,
    Added,
    Modified,
    Deleted(FlowRemovedReason),
}

fn part(version: Version) -> Part {
    match version {
        Version::V10 | Version::V11 | Version::V12 => Part::Experimenter(super::message::NICIRA, 2),
        Version::V13 => Part::Experimenter(ONF, 1870),
        _ => Part::Standard(16),
    }
}

/// Reads a request to begin a monitor. `None` in place of the monitor: the request cancels a
/// monitor.
fn decode(body: &mut Reader<'_>, version: Version) -> Result<(u32, Option<Monitor>), Refusal> {
    let id = body.u32()?;
    let mut out_group = FlowMod::ANY_GROUP;
    let (flags, out_port, table, matching);
    match version {
        Version::V10 | Version::V11 | Version::V12 => {
            flags = from_nicira(body.u16()?)?;
            out_port = PortNumber::from_16_bits(body.u16()?);
            let length = usize::from(body.u16()?);
            table = body.u8()?;
            body.skip(5)?;
            let entries = body.take(length.next_multiple_of(8))?;
            matching = read_entries(&entries[..length], Version::V10)?.0;
        }
        Version::V13 => {
            flags = from_nicira(body.u16()?)?;
            body.skip(2)?;
            out_port = PortNumber(body.u32()?);
            table = body.u8()?;
            body.skip(3)?;
            matching = read_match(body, version)?;
        }
        _ => {
            out_port = PortNumber(body.u32()?);
            out_group = body.u32()?;
            flags = body.u16()?;
            table = body.u8()?;
            let command = body.u8()?;
            matching = read_match(body, version)?;
            match command {
                0 => {}
                2 => return Ok((id, None)),
                _ => return Err(Refusal::BadMonitorCommand),
            }
            if flags & !KNOWN != 0 || flags & (ADD | DELETE | MODIFY) == 0 {
                return Err(Refusal::BadMonitorFlags);
            }
        }
    }
    let filter = FlowFilter {
        table: (table != 0xff).then_some(table),
        matching,
        cookie: CookieFilter::default(),
        out_port,
        out_group,
    };
    Ok((id, Some(Monitor { flags, filter })))
}

/// Converts Nicira's flags to those of OpenFlow 1.4.
fn from_nicira(flags: u16) -> Result<u16, Refusal> {
    if flags & !0x3f != 0 || flags & 0x0e == 0 {
        return Err(Refusal::BadMonitorFlags);
    }
    // Nicira's OWN is the sixth bit, which OpenFlow 1.4 calls NO_ABBREV; both flags ask for full
    // updates.
    Ok(flags)
}

/// Lists the rules that monitors may select, each rule once. With `since`, lists only rules that
/// changed after the change number `since`. One list serves several monitors, so that the number of
/// monitors does not multiply the work.
fn rules(bridge: &dyn Bridge, monitors: &[&Monitor], since: Option<u64>) -> Result<Flows, Refusal> {
    let tables = || monitors.iter().filter_map(|monitor| monitor.filter.table);
    if tables().any(|table| table >= TABLES) {
        return Err(Refusal::BadTable);
    }
    let all = FlowFilter::all();
    let filter = match monitors {
        [] => return Ok(Vec::new().into()),
        [monitor] => &monitor.filter,
        _ => &all,
    };
    match since {
        None => bridge.flows(filter),
        Some(since) => bridge.changes(filter, since),
    }
}

/// Whether a filter selects a rule. The filter's port may also be in the rule's actions before the
/// change, but the filter's group must be in the present actions, as in Open vSwitch.
fn selects(filter: &FlowFilter, flow: &FlowEntry, former: &[Action]) -> bool {
    let has_port = |actions: &[Action]| {
        filter.out_port == PortNumber::NONE
            || any(actions, &|action| action.sends_to(filter.out_port))
    };
    let is_group = |action: &Action| *action == Action::Group(filter.out_group);
    filter.table.is_none_or(|table| table == flow.table)
        && flow.matching.is_within(&filter.matching)
        && (has_port(&flow.actions) || has_port(former))
        && (filter.out_group == FlowMod::ANY_GROUP || any(&flow.actions, &is_group))
}

/// Whether `test` is true for an action or for an action nested within another action.
fn any(actions: &[Action], test: &dyn Fn(&Action) -> bool) -> bool {
    actions.iter().any(|action| {
        test(action)
            || match action {
                Action::WriteActions(nested) | Action::Clone(nested) => any(nested, test),
                _ => false,
            }
    })
}

/// Tells the peer that updates pause or resume.
fn encode_pause(is_start: bool, version: Version, out: &mut Vec<u8>) {
    let start = match version {
        Version::V10 | Version::V11 | Version::V12 => {
            begin_nicira_message(version, 0, if is_start { 22 } else { 23 }, out)
        }
        Version::V13 => {
            begin_experimenter(version, 0, ONF, if is_start { 1871 } else { 1872 }, out)
        }
        _ => {
            let mut reply = Multipart::new(version, 0, part(version), out);
            reply.entry(|out| {
                out.put_u16(8);
                out.put_u16(if is_start { 5 } else { 6 });
                out.put_zeros(4);
            });
            return reply.finish();
        }
    };
    end_message(start, out);
}

fn encode_update(
    flow: &FlowEntry,
    event: Event,
    with_actions: bool,
    version: Version,
    out: &mut Vec<u8>,
) {
    let reason = match event {
        Event::Deleted(reason) => reason.in_version(version) as u8,
        _ => 0,
    };
    let actions = if with_actions { flow.actions.as_slice() } else { &[] };
    let start = out.len();
    out.put_u16(0);
    if version >= Version::V14 {
        out.put_u16(match event {
            Event::Initial => 0,
            Event::Added => 1,
            Event::Deleted(_) => 2,
            Event::Modified => 3,
        });
        out.put_u8(flow.table);
        out.put_u8(reason);
        out.put_u16(flow.idle_timeout);
        out.put_u16(flow.hard_timeout);
        out.put_u16(flow.priority);
        out.put_zeros(4);
        out.put_u64(flow.cookie);
        write_match(&flow.matching, version, out);
        encode_instructions(actions, version, &flow.matching, out);
    } else {
        out.put_u16(match event {
            Event::Initial | Event::Added => 0,
            Event::Deleted(_) => 1,
            Event::Modified => 2,
        });
        out.put_u16(reason.into());
        out.put_u16(flow.priority);
        out.put_u16(flow.idle_timeout);
        out.put_u16(flow.hard_timeout);
        let length = out.len();
        out.put_u16(0);
        out.put_u8(flow.table);
        out.put_u8(0);
        out.put_u64(flow.cookie);
        let entries = out.len();
        if version <= Version::V12 {
            write_entries(&flow.matching, Version::V10, out);
            out.set_u16(length, (out.len() - entries) as u16);
            out.pad_to_8(entries);
            encode_actions(actions, version, &flow.matching, out);
        } else {
            write_match(&flow.matching, version, out);
            out.set_u16(length, (out.len() - entries) as u16);
            encode_instructions(actions, version, &flow.matching, out);
        }
    }
    out.set_u16(start, (out.len() - start) as u16);
}

/// Maximum number of monitors of a connection. The switch compares each rule with each monitor, and
/// the bridge's other peers wait meanwhile.
const MAX_MONITORS: usize = 64;

const INITIAL: u16 = 1;
const ADD: u16 = 1 << 1;
const DELETE: u16 = 1 << 2;
const MODIFY: u16 = 1 << 3;
const ACTIONS: u16 = 1 << 4;
/// NO_ABBREV and ONLY_OWN of OpenFlow 1.4, OWN of Nicira: the peer gets full updates also for its
/// own changes. ovs-ofctl also sets ONLY_OWN when it wants the changes of all peers.
const WHOLE: u16 = 3 << 5;
const KNOWN: u16 = 0x7f;
