#include "workload/users.h"

#include <algorithm>
#include <limits>

#include "sim/mix.h"
#include "sim/rng.h"
#include "workload/limits.h"

namespace spillway::workload {

namespace {

// Content id of one user's question, or its answer, in one turn. The groups that clients share have
// small numbers.
std::uint64_t content_of(std::size_t user, std::uint64_t ordinal, std::uint64_t which) {
  return sim::mix(sim::mix(sim::mix(user) + ordinal) + which) | (std::uint64_t{1} << 63);
}

}  // namespace

bool has_users(const Synthetic& config) {
  return std::any_of(config.clients.begin(), config.clients.end(),
                     [](const Client& client) { return client.closed_loop() != nullptr; });
}

Users::Users(const Synthetic& config, std::uint64_t seed, std::int64_t quantum_ns)
    : seed_(seed), quantum_(quantum_ns) {
  const sim::Time workload_end = sim::from_seconds(config.duration_s.value_or(sim::kLongestSpan_s));
  Names names;
  for (std::size_t i = 0; i < config.clients.size(); ++i) {
    const Client& client = config.clients[i];
    const NamedClient named = intern(client, names);
    const ClosedLoop* loop = client.closed_loop();
    if (!loop) continue;
    sources_.push_back(
        {.loop = *loop,
         .client = i,
         .lengths = {client.input_tokens, client.output_tokens, client.length_correlation,
                     client.max_tokens},
         .max_tokens = static_cast<std::int32_t>(client.max_tokens.value_or(0)),
         .named = named,
         .end = client.end(workload_end),
         .left = client.num_requests.value_or(std::numeric_limits<std::int64_t>::max()),
         .first_user = users_.size()});
    for (std::int64_t user = 0; user < loop->users; ++user) {
      users_.push_back({.source = sources_.size() - 1});
      users_.back().next =
          announce(users_.size() - 1, sim::from_seconds(client.start_s), sim::Time{0});
    }
  }
}

// A unique number for each request of each user of a client.
std::uint64_t Users::draw_of(std::size_t which) const {
  const User& user = users_[which];
  const Source& source = sources_[user.source];
  return user.ordinal * static_cast<std::uint64_t>(source.loop.users) + which - source.first_user;
}

sim::Time Users::announce(std::size_t which, sim::Time now, sim::Time least) {
  Source& source = sources_[users_[which].source];
  if (source.left == 0) return sim::kForever;
  double think_s = source.loop.think_time_s;
  if (source.loop.think_time == ThinkTime::exponential && think_s > 0) {
    sim::Draws draws(seed_, sim::Stream::arrivals, draw_of(which), source.client);
    think_s *= draws.exponential();
  }
  const sim::Time next = now + std::max(quantum_.truncate_us(think_s * 1e6), least);
  if (next >= source.end) return sim::kForever;
  --source.left;
  return next;
}

Arrival Users::ask(std::size_t which) {
  User& user = users_[which];
  const Source& source = sources_[user.source];
  sim::Draws in(seed_, sim::Stream::input_lengths, draw_of(which), source.client);
  sim::Draws out(seed_, sim::Stream::output_lengths, draw_of(which), source.client);
  const LengthsOfRequest lengths = source.lengths.draw(in, out);
  const auto own = static_cast<std::uint32_t>(lengths.input_tokens);
  const auto turns = static_cast<std::uint64_t>(source.loop.turns);
  if (user.ordinal % turns == 0) {
    user.conversation.clear();
    if (source.named.prefix.tokens > 0) user.conversation.push_back(source.named.prefix);
  }
  std::int64_t input_tokens = own;
  for (const Segment& segment : user.conversation) input_tokens += segment.tokens;
  // A question that no later turn repeats needs no content id.
  if (turns > 1) user.conversation.push_back({content_of(which, user.ordinal, 0), own});
  ++user.ordinal;
  return {
      .time = user.next,
      .input_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(input_tokens, kMaxTokens)),
      .output_tokens = static_cast<std::int32_t>(lengths.output_tokens),
      .tenant = source.named.tenant,
      .slo_class = source.named.slo_class,
      .segments = user.conversation,
      .answer = user.ordinal % turns == 0 ? 0 : content_of(which, user.ordinal, 1),
      .max_tokens = source.max_tokens,
      .model = source.named.model};
}

sim::Time Users::answered(std::size_t which, std::int32_t tokens, sim::Time now) {
  User& user = users_[which];
  if (sources_[user.source].loop.turns > 1) {
    user.conversation.push_back(
        {content_of(which, user.ordinal, 1), static_cast<std::uint32_t>(tokens)});
  }
  user.next = announce(which, now, sim::Time{0});
  return user.next;
}

sim::Time Users::refused(std::size_t which, sim::Time now) {
  User& user = users_[which];
  const double turnaround_s = sources_[user.source].loop.refusal_turnaround_s;
  user.next =
      announce(which, now, std::max(quantum_.span(), quantum_.truncate_us(turnaround_s * 1e6)));
  return user.next;
}

}  // namespace spillway::workload
