//! Judgements about clusters that no test could start.
