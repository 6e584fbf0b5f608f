//! The actions `bundle` and `multipath`, which choose by a hash, and `sample`.

use flow::action::{
    Action, Bundle, HashFields, Multipath, MultipathAlgorithm, Sample, SampleDirection,
};

use crate::error::{TextError, refuse};
use crate::number::{leading, number_16, number_32};
use crate::port::{PortNames, parse_port};
use crate::subfield::{has_header, parse_subfield};
use crate::token::{KeyValues, Words};

/// Maximum number of members of a bundle.
const MAX_MEMBERS: usize = 2048;

pub(crate) const HASH_FIELDS: [(&str, HashFields); 8] = [
    ("eth_src", HashFields::EthSrc),
    ("symmetric", HashFields::Symmetric),
    ("symmetric_l4", HashFields::SymmetricL4),
    ("symmetric_l3l4", HashFields::SymmetricL3L4),
    ("symmetric_l3l4+udp", HashFields::SymmetricL3L4Udp),
    ("nw_src", HashFields::NwSrc),
    ("nw_dst", HashFields::NwDst),
    ("symmetric_l3", HashFields::SymmetricL3),
];

pub(crate) const ALGORITHMS: [(&str, MultipathAlgorithm); 4] = [
    ("modulo_n", MultipathAlgorithm::ModuloN),
    ("hash_threshold", MultipathAlgorithm::HashThreshold),
    ("hrw", MultipathAlgorithm::HighestRandomWeight),
    ("iter_hash", MultipathAlgorithm::IterativeHash),
];

pub(crate) fn bundle(text: &str, is_load: bool, names: &PortNames) -> Result<Action, TextError> {
    let mut words = Words::new(text);
    let mut word = || words.next(b", ");
    let (fields, basis, algorithm, kind) = (word(), word(), word(), word());
    let destination = if is_load { word() } else { None };
    let delimiter = words.next(b": ");
    let (Some(fields), Some(basis), Some(algorithm), Some(kind), Some(delimiter)) =
        (fields, basis, algorithm, kind, delimiter)
    else {
        return Err(refuse!("{text}: not enough arguments to bundle action"));
    };
    if !["members", "slaves"].iter().any(|name| delimiter.eq_ignore_ascii_case(name)) {
        return Err(refuse!(
            "{text}: missing member delimiter, expected `members', got `{delimiter}'"
        ));
    }
    let mut members = Vec::new();
    while members.len() < MAX_MEMBERS {
        let Some(member) = words.next(b", []") else { break };
        let port = parse_port(member, names).ok_or_else(|| refuse!("{member}: bad port number"))?;
        members.push(port);
    }
    let fields = hash_fields(text, fields)?;
    let highest_random_weight = match algorithm.to_ascii_lowercase().as_str() {
        "active_backup" => false,
        "hrw" => true,
        _ => return Err(refuse!("{text}: unknown algorithm `{algorithm}'")),
    };
    if !kind.eq_ignore_ascii_case("ofport") {
        return Err(refuse!("{text}: unknown member_type `{kind}'"));
    }
    let destination = match destination {
        None => None,
        Some(name) => {
            let part = parse_subfield(name)?;
            if !has_header(part.field) {
                return Err(refuse!("{text}: experimenter OXM field '{name}' not supported"));
            }
            Some(part)
        }
    };
    let basis = leading(basis) as u16;
    Ok(Action::Bundle(Box::new(Bundle {
        highest_random_weight,
        fields,
        basis,
        destination,
        members,
    })))
}

pub(crate) fn multipath(text: &str) -> Result<Action, TextError> {
    let mut words = Words::new(text);
    let mut word = || words.next(b", ");
    let parts = (word(), word(), word(), word(), word(), word());
    let (Some(fields), Some(basis), Some(algorithm), Some(links), Some(argument), Some(name)) =
        parts
    else {
        return Err(refuse!("{text}: not enough arguments to multipath action"));
    };
    let fields = hash_fields(text, fields)?;
    let found = ALGORITHMS.iter().find(|(name, _)| algorithm.eq_ignore_ascii_case(name));
    let (_, algorithm) =
        *found.ok_or_else(|| refuse!("{text}: unknown algorithm `{algorithm}'"))?;
    let links = i64::from(leading(links) as i32);
    if !(1..=65536).contains(&links) {
        return Err(refuse!("{text}: n_links {links} is not in valid range 1 to 65536"));
    }
    let destination = parse_subfield(name)?;
    if !has_header(destination.field) {
        return Err(refuse!("{text}: experimenter OXM field '{name}' not supported"));
    }
    if destination.width < 16 && links > 1 << destination.width {
        return Err(refuse!(
            "{text}: {}-bit destination field has {} possible values, less than specified \
             n_links {links}",
            destination.width,
            1 << destination.width
        ));
    }
    Ok(Action::Multipath(Box::new(Multipath {
        fields,
        basis: leading(basis) as u16,
        algorithm,
        max_link: (links - 1) as u16,
        argument: leading(argument) as u32,
        destination,
    })))
}

fn hash_fields(text: &str, name: &str) -> Result<HashFields, TextError> {
    HASH_FIELDS
        .iter()
        .find(|(known, _)| *known != "symmetric" && name.eq_ignore_ascii_case(known))
        .map(|(_, fields)| *fields)
        .ok_or_else(|| refuse!("{text}: unknown fields `{name}'"))
}

pub(crate) fn sample(text: &str, names: &PortNames) -> Result<Action, TextError> {
    let mut sample = Sample {
        probability: 0,
        collector_set: 0,
        observation_domain: 0,
        observation_point: 0,
        sampling_port: None,
        direction: SampleDirection::Default,
    };
    for (key, value) in KeyValues::new(text) {
        match key {
            "probability" => {
                sample.probability = number_16(value, "probability")?;
                if sample.probability == 0 {
                    return Err(refuse!("invalid probability value \"{value}\""));
                }
            }
            "collector_set_id" => sample.collector_set = number_32(value)?,
            "obs_domain_id" => sample.observation_domain = number_32(value)?,
            "obs_point_id" => sample.observation_point = number_32(value)?,
            "sampling_port" => {
                let port =
                    parse_port(value, names).ok_or_else(|| refuse!("{value}: unknown port"))?;
                sample.sampling_port =
                    Some(port).filter(|port| *port != flow::port_number::PortNumber::NONE);
            }
            "ingress" => sample.direction = SampleDirection::Ingress,
            "egress" => sample.direction = SampleDirection::Egress,
            _ => return Err(refuse!("invalid key \"{key}\" in \"sample\" argument")),
        }
    }
    if sample.probability == 0 {
        return Err(refuse!("non-zero \"probability\" must be specified on sample"));
    }
    Ok(Action::Sample(Box::new(sample)))
}
