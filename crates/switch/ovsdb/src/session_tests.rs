use super::*;

fn sent(session: &mut Session) -> Vec<Json> {
    let mut documents = Documents::with_limit(1 << 20);
    documents.receive(&std::mem::take(session.output())).unwrap();
    std::iter::from_fn(|| documents.take().unwrap()).collect()
}

fn answer(session: &mut Session, message: Json) -> Result<Vec<Event>, Lost> {
    session.receive(message.to_string().as_bytes(), 0)
}

fn schema() -> Json {
    let columns = |names: &str| {
        let columns = names.split(' ').map(|name| (name.to_owned(), json!({})));
        json!({ "columns": columns.collect::<serde_json::Map<_, _>>() })
    };
    json!({ "name": "Open_vSwitch", "version": "8.3.1", "tables": {
        "Open_vSwitch": columns("bridges next_cfg other_config cur_cfg"),
        "Bridge": columns("name ports controller fail_mode other_config"),
        "Port": columns("name interfaces"),
        "Interface": columns("name type options other_config ofport"),
        "Controller": columns("target"),
        "Mirror": columns("name"),
        "QoS": columns("type other_config"),
        "Flow_Table": columns("name"),
        "Queue": columns("other_config"),
    } })
}

/// Begins a session that has sent three requests: for the lock (1), for the monitor (2) and for the
/// port numbers (3).
fn begun() -> Session {
    let mut session = Session::begin(0);
    assert_eq!(sent(&mut session)[0]["method"], "get_schema");
    let events = answer(&mut session, json!({ "id": 0, "result": schema(), "error": null }));
    assert_eq!(events, Ok(vec![]));
    let asked = sent(&mut session);
    assert_eq!((&asked[0]["method"], &asked[1]["method"]), (&json!("lock"), &json!("monitor")));
    assert_eq!(asked[2]["params"][1]["columns"], json!(["_uuid", "ofport"]));
    session
}

#[test]
fn a_session_may_act_once_it_has_the_lock_and_the_rows() {
    let mut session = begun();
    let row = "4a2a6ed5-c59f-4e8a-b922-f54d07efc5ba";
    let rows = json!({ "Interface": { row: { "new": { "name": "p1" } } } });
    let events = answer(&mut session, json!({ "id": 2, "result": rows, "error": null }));
    assert_eq!(events, Ok(vec![Event::Changed]));
    let gone = "4a2a6ed5-c59f-4e8a-b922-f54d07efc5bb";
    let numbers = json!([{ "rows": [{ "_uuid": ["uuid", row], "ofport": 7 },
        { "_uuid": ["uuid", gone], "ofport": 8 }] }]);
    assert!(!session.is_settled());
    let events = answer(&mut session, json!({ "id": 3, "result": numbers, "error": null }));
    assert_eq!((events, session.is_settled()), (Ok(vec![]), true));
    let numbers: Vec<_> =
        session.database().rows("Interface").map(|(_, row)| row.integer("ofport")).collect();
    assert_eq!(numbers, [Some(7)]);
    let events = answer(&mut session, json!({ "id": 1, "result": { "locked": false } }));
    assert_eq!((events, session.may_act()), (Ok(vec![Event::Lock]), false));
    answer(&mut session, json!({ "method": "locked", "params": ["ovs_vswitchd"], "id": null }))
        .unwrap();
    assert!(session.may_act());
    answer(&mut session, json!({ "method": "stolen", "params": ["ovs_vswitchd"], "id": null }))
        .unwrap();
    assert!(!session.may_act());
}

#[test]
fn a_transaction_asserts_the_lock_and_reports_its_outcome() {
    let mut session = begun();
    let transact = |session: &mut Session, result: Json| {
        session.transact(&[json!({ "op": "comment" }).to_string()], 0);
        assert!(session.is_busy());
        let asked = sent(session);
        assert_eq!(asked[0]["params"][1], json!({ "op": "assert", "lock": LOCK }));
        assert_eq!(asked[0]["params"][2], json!({ "op": "comment" }));
        answer(session, json!({ "id": asked[0]["id"], "result": result, "error": null }))
    };
    assert_eq!(transact(&mut session, json!([{}, {}])), Ok(vec![Event::Committed]));
    let refused = json!([{}, null, { "error": "constraint violation", "details": "no such row" }]);
    let events = transact(&mut session, refused);
    assert_eq!(events, Ok(vec![Event::Refused("no such row".to_owned())]));
    assert!(!session.is_busy());
}

#[test]
fn echo_requests_are_answered_and_unknown_requests_are_refused() {
    let mut session = begun();
    answer(&mut session, json!({ "id": "echo", "method": "echo", "params": [1] })).unwrap();
    answer(&mut session, json!({ "id": 9, "method": "steal", "params": [] })).unwrap();
    let replies = sent(&mut session);
    assert_eq!(replies[0], json!({ "id": "echo", "result": [1], "error": null }));
    assert_eq!(replies[1]["error"], "unknown method");
}

#[test]
fn a_silent_server_gets_an_echo_request_before_the_session_ends() {
    let mut session = begun();
    answer(&mut session, json!({ "id": 1, "result": { "locked": true } })).unwrap();
    answer(&mut session, json!({ "id": 2, "result": {} })).unwrap();
    answer(&mut session, json!({ "id": 3, "result": [{ "rows": [] }] })).unwrap();
    session.tick(IDLE_MS).unwrap();
    assert_eq!(sent(&mut session)[0]["method"], "echo");
    session.tick(IDLE_MS + 9_999).unwrap();
    assert!(sent(&mut session).is_empty());
    assert_eq!(session.tick(IDLE_MS + 10_000), Err(Lost::Silent(10_000)));
}

#[test]
fn a_malformed_message_of_the_server_ends_the_session() {
    let row = "4a2a6ed5-c59f-4e8a-b922-f54d07efc5ba";
    for message in [
        json!([]),
        json!({ "id": 7, "result": {} }),
        json!({ "id": "x", "result": {} }),
        json!({ "method": 1, "params": [] }),
        json!({ "method": "update", "params": ["weir"], "id": null }),
        json!({ "method": "update", "params": ["weir", { "Port": { row: { "new": 1 } } }] }),
        json!({ "id": 1, "result": { "locked": "yes" } }),
        json!({ "id": 2, "result": [] }),
        json!({ "id": 3, "result": [] }),
        json!({ "id": 3, "result": [{ "rows": [{ "ofport": 7 }] }] }),
    ] {
        let outcome = answer(&mut begun(), message.clone());
        assert_eq!(outcome, Err(Lost::Malformed), "{message}");
    }
    assert_eq!(begun().receive(b"HTTP/1.1 400", 0), Err(Lost::Malformed));
    let canceled = json!({ "method": "monitor_canceled", "params": ["weir"], "id": null });
    assert_eq!(answer(&mut begun(), canceled), Err(Lost::Canceled));
    let refused = json!({ "id": 2, "result": null, "error": { "error": "no", "details": "x" } });
    let lost = answer(&mut begun(), refused).unwrap_err().to_string();
    assert!(lost.contains("refused the monitor: x"), "{lost}");
}
