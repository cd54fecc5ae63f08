//! `MULTI`, `EXEC` and `DISCARD`.

use std::time::Instant;

use super::super::session::Transaction;
use super::{Call, Outcome, run};

pub(super) fn multi(call: &mut Call<'_, '_>) -> Outcome {
    if call.session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    call.session.transaction = Some(Transaction::default());
    call.out.simple("OK");
    Ok(())
}

pub(super) fn discard(call: &mut Call<'_, '_>) -> Outcome {
    if call.session.transaction.take().is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    call.out.simple("OK");
    Ok(())
}

pub(super) fn exec(call: &mut Call<'_, '_>) -> Outcome {
    let Some(transaction) = call.session.transaction.take() else {
        return Err("ERR EXEC without MULTI".into());
    };
    if transaction.aborted {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    call.out.array(transaction.commands.len());
    for queued in &transaction.commands {
        if call.overflows() {
            break;
        }
        let mut inner = Call {
            state: &mut *call.state,
            session: &mut *call.session,
            others: call.others,
            args: queued.args(),
            out: &mut *call.out,
        };
        run(&mut inner, queued.command, Instant::now());
    }
    Ok(())
}
