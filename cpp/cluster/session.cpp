#include "cluster/session.h"

#include <algorithm>
#include <utility>

#include "cluster/held_run.h"
#include "cluster/nesting.h"
#include "sim/error.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

Session::Session(Simulation simulation, std::uint64_t seed, RunOptions options)
    : simulation_(std::move(simulation)) {
  if (!options.is_checked) sim::check(simulation_);
  check_has_requests(simulation_);
  options.is_observed = true;
  const InsideRun inside;
  run_ = hold(simulation_, seed, std::move(options));
  tenants_ = run_->tenants();
}
Session::~Session() = default;

HeldRun& Session::run_for(const char* call) const {
  if (failed_in_ != nullptr) {
    throw sim::UsageError(std::string(call) + ": an error ended the run of this session, inside " +
                          failed_in_ + "; a fork can still be made, as of now_s");
  }
  if (!run_) throw sim::UsageError(std::string(call) + ": the session is over: finish was called");
  return *run_;
}

auto Session::handle(const char* call, const auto& work) {
  const sim::Exclusive::Call alone(calls_, call);
  const InsideRun inside;
  HeldRun& run = run_for(call);
  try {
    return work(run);
  } catch (const sim::Interrupted&) {  // between two events
    now_ = std::max(now_.load(), run.now());
    throw;
  } catch (...) {
    failed_in_ = call;
    throw;
  }
}

auto Session::ask(const char* call, const auto& work) const {
  const sim::Exclusive::Call alone(calls_, call);
  return work(run_for(call));
}

void Session::advance(sim::Time until) {
  handle("advance", [&](HeldRun& run) {
    const sim::Time last = std::min(until, run.horizon());
    run.advance_while_busy(last);
    now_ = std::max(now_.load(), last);
  });
}
void Session::advance_by(std::int64_t requests) {
  handle("advance", [&](HeldRun& run) { now_ = std::max(now_.load(), run.advance_by(requests)); });
}
bool Session::has_pending_work() const {
  return ask("has_pending_work", [](const HeldRun& run) { return run.has_pending_work(); });
}
bool Session::set(const sim::Value::Map& values, sim::Time at) {
  return ask("set", [&](HeldRun& run) {
    const bool is_taken = run.set(values, at);
    if (is_taken) ++num_changes_;
    return is_taken;
  });
}
Observation Session::observe(bool is_true) {
  return handle("observe", [&](HeldRun& run) {
    run.advance(now_);
    return run.observe(now_, is_true);
  });
}
std::optional<std::size_t> Session::submit(const workload::Submission& request, sim::Time at) {
  return ask("submit", [&](HeldRun& run) {
    const std::optional<std::size_t> number = run.submit(request, at);
    if (number) ++num_changes_;
    return number;
  });
}
std::size_t Session::num_submitted() const {
  return ask("num_submitted", [](const HeldRun& run) { return run.submissions().size(); });
}
SubmissionStatus Session::status(std::size_t number) const {
  return ask("status", [&](const HeldRun& run) {
    if (number >= run.submissions().size()) {
      throw sim::UsageError("status: no request has the number " + std::to_string(number));
    }
    return run.submissions().status(number, now_);
  });
}

Output Session::finish() {
  return handle("finish", [&](HeldRun& run) {
    run.advance(run.horizon());
    Output output = run.finish();
    run_.reset();
    return output;
  });
}

}  // namespace spillway::cluster
