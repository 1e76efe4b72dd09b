#include "router/router.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "router/policy.h"
#include "sim/schema/codec.h"

namespace spillway::router {

std::unique_ptr<RoutingPolicy> make_policy(const Router& config, std::int64_t block_size_tokens) {
  return std::visit(
      [&](const auto& c) {
        if constexpr (requires { make(c, block_size_tokens); }) {
          return make(c, block_size_tokens);
        } else {
          return make(c);
        }
      },
      config);
}

signals::Needs needs_of(const Router& config) { return signals::needs_of(config); }
signals::Follows follows_of(const Router& config) { return signals::follows_of(config); }
bool rates_ranks(const Router& config) {
  return std::visit(
      []<class Config>(const Config&) {
        if constexpr (requires { Config::rates_ranks; }) return Config::rates_ranks;
        return false;
      },
      config);
}

Dispatcher::Dispatcher(const Router& config, const signals::PrefixIndexConfig& prefix_index_config,
                       std::unique_ptr<signals::PrefixIndex> prefix_index,
                       std::unique_ptr<signals::Outstanding> outstanding,
                       std::unique_ptr<signals::OnlinePredictor> predictor,
                       const signals::Needs& needs, std::size_t num_instances, std::uint64_t seed,
                       DecisionLog& log)
    : policy_(make_policy(config, prefix_index_config.block_size_tokens)),
      prefix_index_(std::move(prefix_index)),
      outstanding_(std::move(outstanding)),
      predictor_(std::move(predictor)),
      seed_(seed),
      in_flight_(num_instances, 0),
      in_flight_tokens_(needs.in_flight_tokens ? num_instances : 0, 0),
      follows_admitted_(outstanding_ || policy_->follows_admitted()),
      follows_sent_(outstanding_ || needs.in_flight_tokens),
      follows_requests_(predictor_ || outstanding_ || needs.in_flight_tokens),
      local_{.in_flight = in_flight_,
             .in_flight_tokens = in_flight_tokens_,
             .prefix_index = prefix_index_.get(),
             .outstanding = outstanding_.get(),
             .predictor = predictor_.get()},
      log_(log) {}

void Dispatcher::change(const Router& from, const Router& to) {
  if (sim::differ(from, to)) policy_->change(to);
}

signals::View Dispatcher::candidates_of(const signals::View& view) {
  candidates_.clear();
  for (std::size_t i = 0; i < view.size(); ++i) {
    const bool is_shunned =
        (view.skips_stale() && view.is_stale(i)) || (view.skips_busy() && view.is_busy(i));
    if (!is_shunned) candidates_.push_back(view.id(i));
  }
  const bool shuns_some = !candidates_.empty() && candidates_.size() < view.size();
  return shuns_some ? view.of(candidates_) : view;
}

sim::InstanceId Dispatcher::pick(const signals::RequestView& request,
                                 const signals::View& candidates, sim::Time now) {
  sim::Draws draws(seed_, sim::Stream::router, request.row());
  return policy_->pick(request, candidates, now, draws);
}

inline Target Dispatcher::settle(const signals::View& view, const signals::RequestView& request,
                                 sim::InstanceId chosen, sim::Time now) {
  const std::optional<std::size_t> picked = policy_->picked_rank();
  const Target target{chosen, picked ? *picked : view.next_rank(chosen)};
  if (log_.is_kept()) {
    log_.add(request, view, policy_->scores(), picked.has_value(), target, now);
  }
  if (predictor_) predictor_->decided(request, view, chosen, now);
  policy_->learn(request, chosen);
  return target;
}

Target Dispatcher::decide_among(const signals::View& view, const signals::RequestView& request,
                                sim::Time now) {
  return settle(view, request, pick(request, view, now), now);
}

std::optional<Target> Dispatcher::decide_or_reject(const signals::RequestView& request,
                                                   const signals::View& view, sim::Time now) {
  const signals::View candidates = is_restricted(view) ? candidates_of(view) : view;
  const sim::InstanceId chosen = pick(request, candidates, now);
  if (chosen == kNoInstance) return std::nullopt;
  return settle(candidates, request, chosen, now);
}

void Dispatcher::note_admitted(const signals::RequestView& request, const signals::View& view) {
  if (outstanding_) outstanding_->admitted(request.id(), fewest_uncached_tokens(request));
  policy_->admitted(request, view);
}

void Dispatcher::note_dropped(sim::RequestId id) {
  if (outstanding_) outstanding_->left_queue(id);
  policy_->dropped(id);
}

void Dispatcher::note_sent(const signals::RequestView& request, const Target& target,
                           sim::Time now) {
  const sim::InstanceId chosen = target.instance;
  if (outstanding_) {
    const std::int64_t known =
        prefix_index_ ? prefix_index_->matched_blocks(request.id(), chosen.index(), target.rank)
                      : 0;
    outstanding_->sent(request.id(), chosen, uncached_tokens(request, known), now);
  }
  if (!in_flight_tokens_.empty()) {
    const std::int64_t known = prefix_index_->matched_blocks(request.id(), chosen.index());
    count_tokens(request.id(), chosen, uncached_tokens(request, known));
  }
}

void Dispatcher::note_first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now) {
  if (outstanding_) outstanding_->first_token(id, instance, now);
  if (predictor_) predictor_->first_token(id, now);
}

void Dispatcher::note_finished(sim::RequestId id, sim::InstanceId instance, bool is_completed,
                               sim::Time now) {
  if (predictor_ && is_completed) predictor_->completed(id, now);
  if (!in_flight_tokens_.empty()) in_flight_tokens_[instance.index()] -= tokens_of_[id.index()];
  if (outstanding_) outstanding_->ended(id, instance, now);
}

void Dispatcher::count_tokens(sim::RequestId id, sim::InstanceId chosen, std::int64_t tokens) {
  if (tokens_of_.size() <= id.index())
    tokens_of_.resize(std::max(id.index() + 1, 2 * tokens_of_.size()));
  tokens_of_[id.index()] = tokens;
  in_flight_tokens_[chosen.index()] += tokens;
}

std::int64_t Dispatcher::uncached_tokens(const signals::RequestView& request,
                                         std::int64_t blocks) const {
  const std::int64_t prompt = request.input_tokens();
  return prefix_index_ ? prompt - blocks * prefix_index_->block_size_tokens() : prompt;
}

std::int64_t Dispatcher::fewest_uncached_tokens(const signals::RequestView& request) const {
  std::int64_t fewest = request.input_tokens();
  for (std::size_t i = 0; prefix_index_ && i < in_flight_.size(); ++i) {
    const std::int64_t known = prefix_index_->matched_blocks(request.id(), i);
    fewest = std::min(fewest, uncached_tokens(request, known));
  }
  return fewest;
}

}  // namespace spillway::router
