#include "cluster/clients.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "metrics/ledger.h"
#include "sim/phase.h"
#include "workload/synthetic.h"
#include "workload/trace.h"

namespace spillway::cluster {

using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

std::unique_ptr<workload::Users> make_users(const Context& context) {
  const auto* synthetic = std::get_if<workload::Synthetic>(&context.simulation.workload);
  if (!synthetic || !workload::has_users(*synthetic)) return nullptr;
  return std::make_unique<workload::Users>(*synthetic, context.seed, context.simulation.quantum_ns);
}

Time after(Time since, const std::optional<double>& span_s) {
  return span_s ? since + sim::from_seconds(*span_s) : sim::kForever;
}

}  // namespace

class Clients::FirstTokens final : public workload::RequestListener {
 public:
  FirstTokens(Clients& clients, workload::RequestListener& run) : clients_(clients), run_(run) {}
  void first_token(RequestId id) override {
    clients_.answered(id);
    run_.first_token(id);
  }
  void finished(RequestId id) override { run_.finished(id); }
  void released(RequestId id) override { run_.released(id); }

 private:
  Clients& clients_;
  workload::RequestListener& run_;
};

Clients::Clients(Context& context)
    : context_(context), submissions_(*context.record), users_(make_users(context)) {
  make_reactions();
  make_places();
}

Clients::~Clients() = default;

void Clients::make_places() {
  const auto* trace = std::get_if<workload::Trace>(&context_.simulation.workload);
  if (!trace || trace->max_in_flight == 0) return;
  places_ = Places{.open_loop = trace->open_loop_requests.value_or(trace->max_in_flight),
                   .turnaround = sim::from_seconds(trace->turnaround_s)};
  const std::int64_t places = std::min(trace->max_in_flight, trace->rows);
  for (std::int64_t i = 0; i < places; ++i) places_->free.push_back(Time{0});
}

void Clients::make_reactions() {
  const Simulation& simulation = context_.simulation;
  bool is_passive = simulation.reaction.is_passive();
  bool obeys = simulation.reaction.obeys_retry_after();
  std::vector<std::optional<workload::Reaction>> own;
  own.reserve(context_.requests.tenants.size());
  for (const workload::Tenant& tenant : context_.requests.tenants) {
    own.push_back(tenant.reaction);
    if (!tenant.reaction) continue;
    is_passive = is_passive && tenant.reaction->is_passive();
    obeys = obeys || tenant.reaction->obeys_retry_after();
  }
  if (is_passive) return;
  if (has_hedges(simulation)) {
    rivals_ = std::make_unique<Rivals>();
    context_.states.keeps_copies = true;
  }
  reactions_ = std::make_unique<workload::Reactions>(simulation.reaction, own, context_.seed);
  may_withdraw_ = true;
  context_.states.counts_attempts = true;
  context_.states.keeps_retry_after = obeys;
  context_.requests.keep_attempts();
}

void Clients::start() {
  context_.states.resize(context_.requests.capacity());
  schedule_source();
  for (std::size_t user = 0; user < num_users(); ++user) {
    expect(users_->first(user), Phase::user_arrival, static_cast<std::uint32_t>(user));
  }
}

// Arrivals of the source enter the event queue one at a time: each one after its predecessor has
// arrived.
void Clients::schedule_source() {
  Time next = context_.requests.next_arrival();
  if (places_ && next != sim::kForever) {
    const Time earliest = places_->open_loop > 0 ? next : context_.now;
    next = places_->free.empty() ? sim::kForever : std::max(earliest, places_->free.front());
  }
  context_.events.set_source(next);
}

void Clients::expect(Time at, Phase phase, std::uint32_t subject, std::uint32_t tie) {
  if (at == sim::kForever) return;
  ++num_expected_;
  context_.events.push({at, phase, tie, subject});
}

// The numbers of requests order those of one instant, whenever they were submitted.
std::size_t Clients::submit(const workload::Submission& request, Time at) {
  const std::size_t number = submissions_.add(request, at);
  const auto subject = static_cast<std::uint32_t>(number);
  expect(at, Phase::outside_arrival, subject, subject);
  return number;
}

void Clients::cancel(std::size_t number, Time at) {
  const auto subject = static_cast<std::uint32_t>(number);
  context_.events.push({at, Phase::settings_change, subject + 1, subject});
}

void Clients::hand_off(const workload::HandOff& to, Time at) {
  const auto subject = static_cast<std::uint32_t>(to.request);
  submissions_.plan(to);
  context_.events.push({at, Phase::settings_change, kHandOffTie | subject, subject});
}

std::optional<RequestId> Clients::hand_off(std::size_t number) {
  const auto id = submissions_.hand_off(number);
  if (!id) return std::nullopt;
  const workload::HandOff& to = *submissions_.handed_off(*id);
  context_.requests.set_output(*id, to.output_tokens, to.max_tokens.value_or(0));
  return id;
}

RequestId Clients::take(const sim::Event& event) {
  workload::RequestTable& requests = context_.requests;
  if (event.phase() == Phase::source_arrival) return requests.take_next(context_.now);
  --num_expected_;
  const std::uint32_t subject = event.subject();
  if (event.phase() == Phase::user_arrival) return requests.add(users_->ask(subject));
  return requests.add_from_outside(submissions_.request(subject), submissions_.segments(subject),
                                   submissions_.tenant(subject), submissions_.slo_class(subject),
                                   context_.now);
}

RequestId Clients::arrive(const sim::Event& event) {
  const workload::RequestTable& requests = context_.requests;
  if (event.phase() == Phase::retry_arrival) {
    return retry(RequestId{event.subject()});
  }
  const Phase phase = event.phase();
  const RequestId id = take(event);
  if (context_.states.size() < requests.capacity()) context_.states.resize(requests.capacity());
  ++context_.record->offered;
  last_arrival_ = context_.now;
  if (phase == Phase::source_arrival) {
    if (places_) {
      places_->free.pop_front();
      --places_->open_loop;
    }
    schedule_source();
  }
  if (users_) {
    user_of_.resize(requests.capacity());
    user_of_[id.index()] =
        phase == Phase::user_arrival ? std::optional(event.subject()) : std::nullopt;
  }
  submissions_.arrived(
      id, phase == Phase::outside_arrival ? std::optional(event.subject()) : std::nullopt);
  if (reactions_) reactions_->first_attempt(context_.tenant_of(id));
  if (rivals_) rivals_->arrived(id);
  return id;
}

// Another attempt begins, without the timestamps of the last one.
RequestId Clients::retry(RequestId id) {
  --num_expected_;
  if (has_departed(id)) {
    if (is_held(id)) return retry_beside(id);
    departures_[id.index()] = {};
  }
  context_.statistics.retried(id);
  std::vector<std::uint16_t>& attempts = context_.states.attempts;
  const std::uint16_t made = attempts[id.index()];
  context_.states.clear(id);
  attempts[id.index()] = static_cast<std::uint16_t>(made + 1);
  context_.requests.retry(id, context_.now);
  submissions_.awaits_retry(id, false);
  return id;
}

// What follows the request follows its new attempt.
RequestId Clients::retry_beside(RequestId held) {
  const RequestId id = context_.requests.retry_beside(held, context_.now);
  workload::RequestStates& states = context_.states;
  if (states.size() < context_.requests.capacity()) states.resize(context_.requests.capacity());
  states.attempts[id.index()] = static_cast<std::uint16_t>(states.attempts[held.index()] + 1);
  departures_[held.index()].retries = false;
  departures_[held.index()].is_superseded = true;
  if (users_) {
    user_of_.resize(context_.requests.capacity());
    user_of_[id.index()] = std::exchange(user_of_[held.index()], std::nullopt);
  }
  submissions_.continues_as(held, id);
  return id;
}

bool Clients::leave_server(RequestId id, Time delay) {
  const bool is_to_notice = id.index() < departures_.size() && departures_[id.index()].is_at_server;
  if (is_to_notice) return departures_[id.index()].noticed <= context_.now;
  if (delay > Time{0}) depart(id, delay);
  return delay == Time{0};
}

void Clients::depart(RequestId id, Time delay) {
  departures_.resize(std::max(departures_.size(), context_.requests.capacity()));
  Departure& departure = departures_[id.index()];
  departure = {.has_left = true, .is_at_server = true, .is_superseded = departure.is_superseded};
  if (delay != sim::kForever) {
    departure.noticed = context_.now + delay;
    const workload::RequestHandle handle = context_.requests.handle(id);
    context_.events.push({departure.noticed, Phase::client_reaction, handle.row, handle.id.value});
  }
  if (departure.is_superseded) return;
  if (give_up(id)) {
    departure.is_superseded = true;
    return;
  }
  end_attempt(id);
  departure.retries = reactions_ && retries_after(id, workload::Cause::timeout);
  if (departure.retries) {
    submissions_.awaits_retry(id, true);
  } else {
    free_user(id);
  }
}

void Clients::settle() {
  for (std::size_t i = 0; i < departures_.size(); ++i) {
    const RequestId id{i};
    if (!departures_[i].is_superseded) continue;
    context_.statistics.retried(id);
    context_.requests.retire(id);
  }
  // Of two copies that both may answer, the first one stands for the request.
  for (std::size_t i = 0; rivals_ && i < rivals_->size(); ++i) {
    const RequestId id{i};
    count_copies(id);
    if (!rivals_->of(id) || !rivals_->is_second(id)) continue;
    rivals_->give_up(id);
    context_.statistics.retried(id);
    context_.requests.retire(id);
  }
  context_.requests.settle([this](RequestId from, RequestId to) {
    if (rivals_ && rivals_->is_out(from)) return false;
    context_.states.copy(from, to);
    return true;
  });
}

void Clients::begin_attempt(RequestId id) {
  if (reactions_->counts_attempts()) reactions_->began(context_.tenant_of(id));
  const workload::RequestHandle handle = context_.requests.handle(id);
  for (const Time until : {hedge_of(id), first_token_timeout_of(id), timeout_of(id)}) {
    if (until == sim::kForever) continue;
    context_.events.push({until, Phase::client_reaction, handle.row, handle.id.value});
  }
}

std::optional<RequestId> Clients::timer_of(const sim::Event& event) const {
  return context_.requests.find({RequestId{event.subject()}, event.tie()});
}

std::optional<RequestId> Clients::withdraw(std::size_t number) {
  may_withdraw_ = true;
  submissions_.withdraw(number);
  return submissions_.find(number);
}

bool Clients::gives_up(const sim::Event& event) {
  if (!submissions_.is_withdrawn(RequestId{event.subject()})) return false;
  --num_expected_;
  if (reactions_->counts_attempts()) {
    reactions_->gave_up(context_.tenant_of(RequestId{event.subject()}));
  }
  if (has_departed(RequestId{event.subject()})) departures_[event.subject()].retries = false;
  submissions_.awaits_retry(RequestId{event.subject()}, false);
  return true;
}

bool Clients::is_late(RequestId id) const {
  if (has_departed(id)) return true;
  if (submissions_.is_withdrawn(id)) return true;
  if (!reactions_) return false;
  if (timeout_of(id) <= context_.now) return true;
  const bool awaits_first = !sim::is_set(context_.states.first_token[id.index()]);
  return awaits_first && first_token_timeout_of(id) <= context_.now;
}

workload::RequestListener& Clients::listener(workload::RequestListener& run) {
  if (!rivals_) return run;
  first_tokens_ = std::make_unique<FirstTokens>(*this, run);
  return *first_tokens_;
}

std::optional<RequestId> Clients::hedge(RequestId id) {
  if (!rivals_ || hedge_of(id) > context_.now) return std::nullopt;
  workload::RequestStates& states = context_.states;
  const bool has_ended = states.outcome[id.index()] < workload::Outcome::queued;
  const bool has_two = states.copies[id.index()] != workload::Copies::one;
  if (has_ended || has_two || sim::is_set(states.first_token[id.index()])) return std::nullopt;
  if (!reactions_->may_hedge(context_.tenant_of(id))) return std::nullopt;
  const RequestId second = context_.requests.retry_beside(id, context_.now);
  if (states.size() < context_.requests.capacity()) states.resize(context_.requests.capacity());
  if (users_) user_of_.resize(context_.requests.capacity());
  rivals_->pair(id, second);
  for (const RequestId copy : {id, second}) {
    states.copies[copy.index()] = workload::Copies::two;
  }
  states.attempts[second.index()] = 2;
  ++hedge_counts_.sent;
  return second;
}

std::optional<sim::InstanceId> Clients::avoided(RequestId id) const {
  const auto rival = rivals_->of(id);
  if (!rival) return rivals_->avoided(id);
  if (context_.states.instance[rival->index()] < 0) return std::nullopt;
  return context_.instance_of(*rival);
}

void Clients::answered(RequestId id) {
  const auto loser = rivals_->of(id);
  if (!loser) return;
  const bool is_second = rivals_->is_second(id);
  context_.states.copies[id.index()] =
      is_second ? workload::Copies::second_won : workload::Copies::first_won;
  hedge_counts_.won += is_second;
  give_up(*loser);
  rivals_->avoid(*loser, context_.instance_of(id));
  departures_.resize(std::max(departures_.size(), context_.requests.capacity()));
  departures_[loser->index()] = {.has_left = true, .is_superseded = true};
  const workload::RequestHandle handle = context_.requests.handle(*loser);
  context_.events.push({context_.now, Phase::client_reaction, handle.row, handle.id.value});
}

std::optional<RequestId> Clients::give_up(RequestId id) {
  if (!rivals_) return std::nullopt;
  const auto other = rivals_->give_up(id);
  if (other && users_) {
    auto& user = user_of_[id.index()];
    if (user) user_of_[other->index()] = std::exchange(user, std::nullopt);
  }
  return other;
}

void Clients::forget(RequestId id) {
  context_.statistics.retried(id);
  if (!context_.streams()) return;
  context_.states.clear(id);
  context_.requests.retire(id);
}

void Clients::count_copies(RequestId id) {
  if (!rivals_ || context_.states.copies[id.index()] == workload::Copies::one) return;
  context_.states.attempts[id.index()] = 2;
}

Time Clients::hedge_of(RequestId id) const {
  const auto& hedge = reactions_->of(context_.tenant_of(id)).hedge;
  return hedge ? context_.requests.first_arrival(id) + sim::from_seconds(hedge->after_s)
               : sim::kForever;
}
// The clients that hedge do not retry: both copies end with the wait for the first one.
Time Clients::wait_begins(RequestId id) const {
  return rivals_ && reactions_->of(context_.tenant_of(id)).hedge
             ? context_.requests.first_arrival(id)
             : context_.requests.arrival(id);
}
Time Clients::deadline_of(RequestId id) const {
  return after(context_.requests.first_arrival(id),
               reactions_->of(context_.tenant_of(id)).deadline_s);
}
Time Clients::timeout_of(RequestId id) const {
  const workload::Reaction& reaction = reactions_->of(context_.tenant_of(id));
  return std::min(after(wait_begins(id), reaction.timeout_s), deadline_of(id));
}
Time Clients::first_token_timeout_of(RequestId id) const {
  return after(wait_begins(id), reactions_->of(context_.tenant_of(id)).first_token_timeout_s);
}

bool Clients::left(RequestId id) {
  workload::RequestStates& states = context_.states;
  if (states.outcome[id.index()] == workload::Outcome::cancelled) {
    states.reason[id.index()] = {workload::Stage::client, 0};
  }
  if (has_departed(id)) {
    Departure& departure = departures_[id.index()];
    if (is_held(id) || departure.retries) return true;
    if (!std::exchange(departure, {}).is_superseded) {
      count_copies(id);
      submissions_.ended(id, context_.now);
      return false;
    }
    forget(id);
    return true;
  }
  if (give_up(id)) {
    forget(id);
    return true;
  }
  if (reactions_) {
    count_copies(id);
    end_attempt(id);
    if (retries(id)) {
      submissions_.awaits_retry(id, true);
      return true;
    }
  }
  if (places_ || users_) free_user(id);
  submissions_.ended(id, context_.now);
  return false;
}

void Clients::free_user(RequestId id) {
  const workload::RequestStates& states = context_.states;
  if (places_ && !submissions_.include(id)) {
    const bool was_full = places_->free.empty();
    places_->free.push_back(context_.now + places_->turnaround);
    if (was_full) schedule_source();
  }
  if (!users_) return;
  const auto user = user_of_[id.index()];
  if (!user) return;
  const bool is_complete = states.outcome[id.index()] == workload::Outcome::completed;
  const Time next =
      is_complete
          ? users_->answered(*user, context_.requests.target_output_tokens(id), context_.now)
          : users_->refused(*user, context_.now);
  expect(next, Phase::user_arrival, *user);
}

void Clients::end_attempt(RequestId id) {
  if (!reactions_ || !reactions_->counts_attempts()) return;
  reactions_->ended(context_.tenant_of(id), retries_of(id) > 0);
}

bool Clients::retries(RequestId id) {
  const workload::RequestStates& states = context_.states;
  const workload::Outcome outcome = states.outcome[id.index()];
  if (submissions_.is_withdrawn(id)) return false;
  if (outcome == workload::Outcome::completed) return false;
  // Where a failed call was recorded, so were its repetitions.
  const bool is_recorded = states.reason[id.index()].stage == workload::Stage::none;
  if (outcome == workload::Outcome::failed && is_recorded) return false;
  const auto cause = workload::cause_of(metrics::category_of(states.reason[id.index()]));
  return cause && retries_after(id, *cause);
}

bool Clients::retries_after(RequestId id, workload::Cause cause) {
  const workload::RequestStates& states = context_.states;
  if (submissions_.is_withdrawn(id)) return false;
  const Time retry_after = states.keeps_retry_after ? states.retry_after[id.index()] : Time{0};
  const auto wait =
      reactions_->wait(context_.tenant_of(id), cause, states.attempts[id.index()],
                       context_.requests.row(id), retry_after, deadline_of(id) - context_.now);
  if (!wait) return false;
  expect(context_.now + *wait, Phase::retry_arrival, id.value);
  return true;
}

std::int64_t Clients::max_attempts() const {
  std::int64_t most = 1;
  const auto include = [&](const workload::Reaction& reaction) {
    if (reaction.hedge) most = std::max<std::int64_t>(most, 2);
    for (const workload::Retry& retry : reaction.retries) most = std::max(most, retry.max_attempts);
  };
  include(context_.simulation.reaction);
  for (const workload::Tenant& tenant : context_.simulation.tenants) {
    if (tenant.reaction) include(*tenant.reaction);
  }
  return most;
}

std::string Clients::name_of_user(std::uint32_t user) const {
  const auto& synthetic = std::get<workload::Synthetic>(context_.simulation.workload);
  return "user " + std::to_string(user) + " (client '" +
         synthetic.clients[users_->client_of(user)].name + "')";
}

std::string Clients::name_of_client(RequestId id) const {
  const auto user = users_ ? user_of_[id.index()] : std::nullopt;
  return user ? name_of_user(*user) : "request " + std::to_string(context_.requests.row(id));
}

}  // namespace spillway::cluster
