#include "cluster/session.h"

#include <algorithm>
#include <utility>

#include "cluster/held_run.h"
#include "cluster/nesting.h"
#include "sim/error.h"
#include "sim/schema/codec.h"
#include "sim/value.h"

namespace spillway::cluster {

namespace {

void check_known(const char* call, const HeldRun& run, std::size_t number) {
  if (run.submissions().know(number)) return;
  const bool was_known = number < run.submissions().size();
  throw sim::UsageError(
      std::string(call) + ": " +
      (was_known ? "forgotten, because it has ended: request " : "no request has the number ") +
      std::to_string(number));
}

}  // namespace

Session::Session(Simulation simulation, std::uint64_t seed, RunOptions options)
    : simulation_(std::move(simulation)) {
  simulation_.may_fail = options.may_fail;
  if (!options.is_checked) sim::check(simulation_);
  check_has_requests(simulation_, options.is_open);
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

void Session::advance(sim::Time until, std::uint64_t max_events) {
  handle("advance", [&](HeldRun& run) {
    const sim::Time last = std::min(until, run.horizon());
    now_ = std::max(now_.load(), run.advance_while_busy(last, max_events));
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
bool Session::fail(std::span<const fleet::Fault> faults, sim::Time at) {
  return ask("fail", [&](HeldRun& run) {
    const bool is_taken = run.fail(faults, at);
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
bool Session::knows(const workload::Submission& request) const {
  return ask("knows", [&](const HeldRun& run) { return run.knows(request); });
}
std::optional<sim::Time> Session::next_of(const char* call, const HeldRun& run,
                                          std::size_t number) const {
  check_known(call, run, number);
  const Submissions& submissions = run.submissions();
  if (submissions.status(number, now_).has_ended) return std::nullopt;
  const sim::Time next = now_.load() + sim::Time{1};
  const sim::Time arrival = submissions.arrival(number);
  if (arrival > next) {
    throw sim::UsageError(std::string(call) + ": request " + std::to_string(number) +
                          " arrives later, at " + sim::to_text(sim::to_seconds(arrival)) + " s");
  }
  return std::max(next, arrival + sim::Time{1});
}
std::optional<sim::Time> Session::cancel(std::size_t number) {
  return ask("cancel", [&](HeldRun& run) {
    const std::optional<sim::Time> at = next_of("cancel", run, number);
    if (!at) return at;
    run.cancel(number, *at);
    ++num_changes_;
    return at;
  });
}
std::optional<Session::HandedOff> Session::hand_off(const workload::HandOff& to) {
  return ask("hand_off", [&](HeldRun& run) -> std::optional<HandedOff> {
    const auto number = static_cast<std::size_t>(to.request);
    const std::optional<sim::Time> at = next_of("hand_off", run, number);
    const auto refuse = [&](const char* why) {
      throw sim::UsageError("hand_off: request " + std::to_string(number) + why);
    };
    if (!run.submissions().request(number).prefill_only) refuse(" has no prefill_only");
    if (run.submissions().is_planned(number)) refuse(" is handed off already");
    if (!at) return std::nullopt;
    const bool is_taken = run.hand_off(to, *at);
    if (is_taken) ++num_changes_;
    return HandedOff{*at, is_taken};
  });
}
std::vector<SubmissionEvent> Session::take_events(bool forgets) {
  return ask("take_events", [&](HeldRun& run) { return run.take_events(now_, forgets); });
}
std::vector<std::int32_t> Session::progress(std::span<const std::size_t> numbers) {
  return ask("progress", [&](HeldRun& run) {
    run.note_emitted(now_);
    std::vector<std::int32_t> tokens;
    tokens.reserve(numbers.size());
    for (const std::size_t number : numbers) {
      check_known("progress", run, number);
      tokens.push_back(run.submissions().status(number, now_).output_tokens);
    }
    return tokens;
  });
}
sim::Time Session::next_due() {
  return ask("next_due", [&](HeldRun& run) { return run.next_due(now_); });
}
SubmissionStatus Session::status(std::size_t number) const {
  return ask("status", [&](const HeldRun& run) {
    check_known("status", run, number);
    return run.submissions().status(number, now_);
  });
}

void Session::close() {
  ask("close", [](HeldRun& run) { run.close(); });
}

Output Session::finish() {
  return handle("finish", [&](HeldRun& run) {
    run.close();
    run.advance(run.horizon());
    Output output = run.finish();
    run_.reset();
    return output;
  });
}

}  // namespace spillway::cluster
