use super::Case;
use serde::Serialize;
use units::Rate;

/// The result of a rule for a flow or for the machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Holds(Box<Finding>),
    /// The cause does not hold; the text has the number that rules it out.
    RuledOut(String),
    /// The cause cannot be judged; the text names the missing signal.
    NotSeen(String),
    /// The cause does not apply to the flow or the machine, so no report mentions it.
    Irrelevant,
}

/// A cause that holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// One sentence without its full stop.
    pub sentence: String,
    /// The share of the missing speed that the cause explains, from 0 to 1, by the table of
    /// precedence. `None`: something is wrong, but limits nothing now.
    pub explains: Option<f64>,
    /// The highest rate that the cause allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allows: Option<Rate>,
    /// Whether the resource is used as it should be: the cause is then a limit and no fault.
    pub healthy: bool,
    pub evidence: Vec<Evidence>,
    /// Whether the finding follows from the rate itself, as for a pace that the sender measured.
    #[serde(skip)]
    pub is_estimate: bool,
    /// The rule's claim that the cause limits something now.
    #[serde(skip)]
    pub(super) claim: Option<Claim>,
    /// The sentence of the finding if another cause silences it: the signs are present and limit
    /// nothing. Without this sentence the silenced cause is ruled out.
    #[serde(skip)]
    pub when_silenced: Option<String>,
    /// Signals that speak against the cause.
    pub against: Vec<String>,
    pub advice: Vec<Advice>,
}

/// The cause limits something now. The table of precedence ranks the claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Claim {
    /// The shares that the rule measured: of the time, of the packets, of a resource.
    pub(super) measured: [f64; 2],
    pub(super) case: Option<Case>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub signal: String,
    pub value: String,
    /// The value from which the signal counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
}

/// An action for the user. Weir does not carry the action out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub action: String,
    pub commands: Vec<String>,
    /// The problem that the action would not fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
}

impl Finding {
    /// Creates a finding that limits nothing; [`Self::limits`] makes the finding a limit.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            explains: None,
            allows: None,
            healthy: false,
            is_estimate: false,
            claim: None,
            when_silenced: None,
            evidence: Vec::new(),
            against: Vec::new(),
            advice: Vec::new(),
        }
    }

    /// Marks the cause as a limit for which the rule measured no share.
    pub fn limits(self) -> Self {
        self.limits_for(1.0)
    }

    /// Marks the cause as a limit for this share of the time, of the packets or of a resource.
    pub fn limits_for(mut self, measured: f64) -> Self {
        self.claim = Some(Claim { measured: [measured, 0.0], case: None });
        self
    }

    /// Adds a second measured share.
    pub fn and_for(mut self, measured: f64) -> Self {
        if let Some(claim) = &mut self.claim {
            claim.measured[1] = measured;
        }
        self
    }

    /// Marks the finding as a case of its cause that the table ranks apart.
    pub fn case(mut self, case: Case) -> Self {
        if let Some(claim) = &mut self.claim {
            claim.case = Some(case);
        }
        self
    }

    pub fn case_if(self, is_so: bool, case: Case) -> Self {
        if is_so { self.case(case) } else { self }
    }

    pub fn allows(mut self, rate: Option<Rate>) -> Self {
        self.allows = rate;
        self
    }

    pub fn healthy(mut self) -> Self {
        self.healthy = true;
        self
    }

    pub fn estimate(mut self) -> Self {
        self.is_estimate = true;
        self
    }

    pub fn when_silenced(mut self, sentence: impl Into<String>) -> Self {
        self.when_silenced = Some(sentence.into());
        self
    }

    /// Whether the cause limits anything now.
    pub fn is_limit(&self) -> bool {
        self.explains.is_some()
    }

    pub fn seen(mut self, signal: impl Into<String>, value: impl Into<String>) -> Self {
        self.evidence.push(Evidence::new(signal.into(), value.into(), None));
        self
    }

    /// Adds a signal, with the threshold from which it counts.
    pub fn seen_from(
        mut self,
        signal: impl Into<String>,
        value: impl Into<String>,
        threshold: impl Into<String>,
    ) -> Self {
        self.evidence.push(Evidence::new(signal.into(), value.into(), Some(threshold.into())));
        self
    }

    pub fn seen_if(self, signal: &str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.seen(signal, value),
            None => self,
        }
    }

    pub fn against(mut self, text: impl Into<String>) -> Self {
        self.against.push(text.into());
        self
    }

    pub fn against_if(self, is_so: bool, text: &str) -> Self {
        if is_so { self.against(text) } else { self }
    }

    pub fn advise(mut self, advice: Advice) -> Self {
        self.advice.push(advice);
        self
    }

    pub fn holds(self) -> Outcome {
        Outcome::Holds(Box::new(self))
    }
}

impl Evidence {
    /// Completes a percentage with its whole, such as "90 % of the samples". The whole is the end
    /// of the signal (", of the observation"), or the samples if the signal begins with "samples".
    fn new(signal: String, value: String, threshold: Option<String>) -> Self {
        if !value.ends_with('%') {
            return Self { signal, value, threshold };
        }
        if let Some((signal, whole)) = signal.rsplit_once(", of ") {
            return Self {
                signal: signal.to_owned(),
                value: format!("{value} of {whole}"),
                threshold,
            };
        }
        match signal.starts_with("samples ") || signal.starts_with("in samples ") {
            true => Self { signal, value: format!("{value} of the samples"), threshold },
            false => Self { signal, value, threshold },
        }
    }
}

impl Advice {
    pub fn new(action: impl Into<String>) -> Self {
        Self { action: action.into(), commands: Vec::new(), limits: None }
    }

    pub fn run(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// Names the problem that the action would not fix.
    pub fn not(mut self, text: impl Into<String>) -> Self {
        self.limits = Some(text.into());
        self
    }
}

impl Outcome {
    pub fn ruled_out(by: impl Into<String>) -> Self {
        Self::RuledOut(by.into())
    }

    pub fn not_seen(what: impl Into<String>) -> Self {
        Self::NotSeen(what.into())
    }

    /// Returns the finding, if the rule holds.
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Self::Holds(finding) => Some(finding),
            _ => None,
        }
    }
}
