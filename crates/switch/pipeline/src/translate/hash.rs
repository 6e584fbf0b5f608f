//! Hashes of the packet's fields: for multipath, bundle, and groups of type select.

use flow::Field;
use flow::action::{Bundle, HashFields, Multipath, MultipathAlgorithm};
use flow::mix::{SEED, mix};
use flow::port_number::PortNumber;

use super::Way;
use super::fields::{IPV4, IPV6};
use crate::ports::BridgePort;

impl Way<'_> {
    pub(super) fn hash_fields(&mut self, fields: &[(Field, u128)], basis: u64) -> u64 {
        let mut hash = mix(SEED, basis);
        for (field, mask) in fields {
            if self.has(field.prerequisite()) {
                let value = self.read_field(*field) & mask;
                hash = mix(mix(hash, (value >> 64) as u64), value as u64);
            }
        }
        mix(hash, 0)
    }

    /// Returns a hash that is equal for both directions of a connection.
    pub(super) fn hash_connection(&mut self, basis: u64) -> u64 {
        self.hash_by(HashFields::SymmetricL3L4Udp, basis)
    }

    pub(super) fn multipath(&mut self, multipath: &Multipath) {
        let hash = self.hash_by(multipath.fields, multipath.basis.into());
        let links = u64::from(multipath.max_link) + 1;
        let link = match multipath.algorithm {
            MultipathAlgorithm::ModuloN => hash % links,
            MultipathAlgorithm::HashThreshold => {
                ((u128::from(hash) * u128::from(links)) >> 64) as u64
            }
            MultipathAlgorithm::HighestRandomWeight | MultipathAlgorithm::IterativeHash => {
                (0..links).max_by_key(|link| mix(hash, *link)).unwrap_or(0)
            }
        };
        self.write(multipath.destination, link.into());
    }

    pub(super) fn bundle(&mut self, bundle: &Bundle) {
        let tables = self.tables;
        let is_live =
            |port: &&PortNumber| tables.port_set().port(**port).is_some_and(BridgePort::is_live);
        let chosen = if bundle.highest_random_weight {
            let hash = self.hash_by(bundle.fields, bundle.basis.into());
            bundle.members.iter().filter(is_live).max_by_key(|port| mix(hash, port.0.into()))
        } else {
            bundle.members.iter().find(is_live)
        };
        let port = chosen.copied().unwrap_or(PortNumber::NONE);
        match bundle.destination {
            Some(destination) => self.write(destination, port.0.into()),
            None => self.output(port, u16::MAX, None),
        }
    }

    fn hash_by(&mut self, fields: HashFields, basis: u64) -> u64 {
        let mut hash = mix(SEED, basis);
        let has_ethernet = matches!(fields, HashFields::Symmetric | HashFields::SymmetricL4);
        if fields == HashFields::EthSrc {
            hash = mix(hash, self.read_field(Field::EthSrc) as u64);
        } else if has_ethernet {
            hash = self.mix_pair(hash, Field::EthSrc, Field::EthDst);
            hash = mix(hash, self.eth_type().into());
            if self.is_tagged() {
                hash = mix(hash, self.read_field(Field::DlVlan) as u64);
            }
        }
        let (source, destination) = match self.eth_type() {
            IPV4 => (Field::IpSrc, Field::IpDst),
            IPV6 => (Field::Ipv6Src, Field::Ipv6Dst),
            _ => return mix(hash, 0),
        };
        match fields {
            HashFields::EthSrc => return mix(hash, 0),
            HashFields::NwSrc => return self.hash_fields(&[(source, u128::MAX)], basis),
            HashFields::NwDst => return self.hash_fields(&[(destination, u128::MAX)], basis),
            _ => hash = self.mix_pair(hash, source, destination),
        }
        if fields == HashFields::SymmetricL3 {
            return mix(hash, 0);
        }
        hash = mix(hash, self.read_field(Field::NwProto) as u64);
        let protocols: &[u8] = match fields {
            HashFields::SymmetricL3L4Udp => &[6, 17, 132],
            _ => &[6, 132],
        };
        if self.has_transport(protocols) {
            hash = self.mix_pair(hash, Field::TcpSrc, Field::TcpDst);
        }
        mix(hash, 0)
    }

    fn mix_pair(&mut self, hash: u64, a: Field, b: Field) -> u64 {
        let both = self.read_field(a) ^ self.read_field(b);
        mix(mix(hash, (both >> 64) as u64), both as u64)
    }
}

/// Scores a bucket by weighted rendezvous hashing (Thaler and Ravishankar, with logarithms as in
/// Schindelhauer and Schomaker). The bucket with the highest score gets the flow.
pub(super) fn score(hash: u64, bucket: u32, weight: u16) -> f64 {
    let uniform = ((mix(hash, bucket.into()) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    f64::from(weight) / -uniform.ln()
}
