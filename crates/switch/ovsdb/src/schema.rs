//! The tables and columns of the schema `Open_vSwitch` that the switch reads and writes.

use serde_json::{Map, Value as Json, json};

pub const DATABASE: &str = "Open_vSwitch";
/// The name of ovs-vswitchd's lock, which ensures that only one process follows the database.
pub const LOCK: &str = "ovs_vswitchd";
/// The highest major version of the schema that the switch knows.
const KNOWN: u64 = 8;

/// A table with its required columns, and with optional columns that older or newer schemas may
/// lack.
struct Table {
    name: &'static str,
    needed: &'static [&'static str],
    optional: &'static [&'static str],
    /// Columns that are read only at the start of a session, because the switch itself writes them.
    once: &'static [&'static str],
}

const TABLES: &[Table] = &[
    Table {
        name: "Open_vSwitch",
        needed: &["bridges", "next_cfg", "other_config"],
        optional: &["ssl"],
        once: &[],
    },
    Table {
        name: "Bridge",
        needed: &["name", "ports", "controller", "fail_mode", "other_config"],
        optional: &[
            "datapath_type",
            "mirrors",
            "flow_tables",
            "stp_enable",
            "rstp_enable",
            "mcast_snooping_enable",
            "netflow",
            "sflow",
            "ipfix",
            "flood_vlans",
            "protocols",
        ],
        once: &[],
    },
    Table {
        name: "Port",
        needed: &["name", "interfaces"],
        optional: &[
            "tag",
            "trunks",
            "cvlans",
            "vlan_mode",
            "qos",
            "mac",
            "bond_mode",
            "bond_updelay",
            "bond_downdelay",
            "lacp",
            "protected",
            "other_config",
        ],
        once: &["bond_active_slave"],
    },
    Table {
        name: "Interface",
        needed: &["name", "type", "options", "other_config"],
        optional: &[
            "mac",
            "ofport_request",
            "mtu_request",
            "ingress_policing_rate",
            "ingress_policing_burst",
            "ingress_policing_kpkts_rate",
            "ingress_policing_kpkts_burst",
            "bfd",
            "cfm_mpid",
            "lldp",
        ],
        once: &["ofport"],
    },
    Table {
        name: "Controller",
        needed: &["target"],
        optional: &["max_backoff", "inactivity_probe"],
        once: &[],
    },
    Table {
        name: "SSL",
        needed: &[],
        optional: &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"],
        once: &[],
    },
    Table {
        name: "Mirror",
        needed: &["name"],
        optional: &[
            "select_all",
            "select_src_port",
            "select_dst_port",
            "select_vlan",
            "output_port",
            "output_vlan",
            "snaplen",
        ],
        once: &[],
    },
    Table { name: "QoS", needed: &["type", "other_config"], optional: &["queues"], once: &[] },
    Table { name: "Queue", needed: &["other_config"], optional: &[], once: &[] },
    Table {
        name: "Flow_Table",
        needed: &["name"],
        optional: &["flow_limit", "overflow_policy"],
        once: &[],
    },
];

/// The columns that a server's schema has.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub version: String,
    tables: Map<String, Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("the reply is no schema")]
    Malformed,
    #[error(
        "the schema {DATABASE} {version} lacks {missing}; this switch follows schemas 7 and 8: \
         convert the database by ovsdb-tool or ovsdb-client convert, or use a newer weir"
    )]
    Lacks { version: String, missing: String },
}

impl Schema {
    /// Reads the reply to `get_schema`, and checks that the switch can follow a database of this
    /// schema.
    pub fn parse(json: &Json) -> Result<Self, SchemaError> {
        let version = json.get("version").and_then(Json::as_str).ok_or(SchemaError::Malformed)?;
        let tables = json.get("tables").and_then(Json::as_object).ok_or(SchemaError::Malformed)?;
        let schema = Self { version: units::foreign(version).to_string(), tables: tables.clone() };
        for table in TABLES {
            let missing = table.needed.iter().find(|column| !schema.has(table.name, column));
            if let Some(missing) = missing {
                let missing = match schema.tables.contains_key(table.name) {
                    true => format!("the column {missing} of {}", table.name),
                    false => format!("the table {}", table.name),
                };
                return Err(SchemaError::Lacks { version: schema.version, missing });
            }
        }
        Ok(schema)
    }

    #[must_use]
    pub fn has(&self, table: &str, column: &str) -> bool {
        let columns = self.tables.get(table).and_then(|table| table.get("columns"));
        columns.and_then(|columns| columns.get(column)).is_some()
    }

    /// Whether the schema's major version is higher than the versions that the switch knows.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        let first = self.version.split('.').next().and_then(|number| number.parse::<u64>().ok());
        first.is_none_or(|first| first > KNOWN)
    }

    /// Builds the `<monitor-requests>` for the columns that this schema has.
    pub(crate) fn monitor_requests(&self) -> Json {
        let mut requests = Map::new();
        for table in TABLES {
            let of = |columns: &[&'static str]| {
                let known = columns.iter().filter(|column| self.has(table.name, column));
                known.copied().collect::<Vec<_>>()
            };
            let columns = of(&[table.needed, table.optional].concat());
            if columns.is_empty() {
                continue;
            }
            requests.insert(table.name.to_owned(), json!([{ "columns": columns }]));
        }
        requests.into()
    }

    /// Builds the operations that read the columns in `once` at the start of a session, each with
    /// its table. If the session monitored these columns, the server would send back each value
    /// that the switch writes.
    pub(crate) fn once_requests(&self) -> Vec<(&'static str, Json)> {
        let request = |table: &'static Table| {
            let known = table.once.iter().filter(|column| self.has(table.name, column));
            let columns: Vec<_> = std::iter::once(&"_uuid").chain(known).collect();
            (columns.len() > 1).then(|| {
                (
                    table.name,
                    json!({ "op": "select", "table": table.name, "where": [],
                    "columns": columns }),
                )
            })
        };
        TABLES.iter().filter_map(request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a schema with this version and all columns that the switch reads.
    fn whole(version: &str) -> Json {
        let mut tables = Map::new();
        for table in TABLES {
            let columns = [table.needed, table.optional, table.once].concat();
            let columns: Map<_, _> =
                columns.into_iter().map(|name| (name.to_owned(), json!({}))).collect();
            tables.insert(table.name.to_owned(), json!({ "columns": columns }));
        }
        json!({ "name": DATABASE, "version": version, "tables": tables })
    }

    #[test]
    fn the_refusal_of_a_schema_names_the_missing_column() {
        let mut json = whole("9.0.0");
        assert!(Schema::parse(&json).unwrap().is_newer());
        assert!(!Schema::parse(&whole("8.3.1")).unwrap().is_newer());
        json["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("ports");
        let error = Schema::parse(&json).unwrap_err().to_string();
        assert!(error.contains("9.0.0 lacks the column ports of Bridge"), "{error}");
        json["tables"].as_object_mut().unwrap().remove("Bridge");
        let error = Schema::parse(&json).unwrap_err().to_string();
        assert!(error.contains("lacks the table Bridge"), "{error}");
        assert_eq!(Schema::parse(&json!([])).unwrap_err(), SchemaError::Malformed);
    }

    #[test]
    fn columns_that_a_schema_lacks_are_not_monitored() {
        let mut json = whole("7.15.1");
        json["tables"]["Port"]["columns"].as_object_mut().unwrap().remove("cvlans");
        json["tables"].as_object_mut().unwrap().remove("SSL");
        let requests = Schema::parse(&json).unwrap().monitor_requests();
        let columns = requests["Port"][0]["columns"].as_array().unwrap();
        assert!(columns.contains(&json!("tag")) && !columns.contains(&json!("cvlans")));
        assert_eq!(requests["Interface"].as_array().unwrap().len(), 1);
        assert!(requests.get("SSL").is_none());
        let columns = requests["Interface"][0]["columns"].as_array().unwrap();
        assert!(!columns.contains(&json!("ofport")));
    }
}
