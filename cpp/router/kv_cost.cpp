#include "router/kv_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "router/pickers/picker.h"
#include "router/pickers/policies.h"
#include "router/policy.h"
#include "signals/tiers.h"

namespace spillway::router {

namespace {

class KvCostPolicy final : public RoutingPolicy {
 public:
  KvCostPolicy(const KvCost& config, std::int64_t block_size_tokens)
      : config_(config),
        block_size_tokens_(static_cast<double>(block_size_tokens)),
        picker_(config.temperature == 0 ? make(Best{Ties::random})
                                        : make(Softmax{config.temperature})),
        refreshes_late_(config.overlap_refresh_after_s > 0),
        refresh_after_(sim::from_seconds(config.overlap_refresh_after_s)) {}

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, sim::Time,
                       sim::Draws& draws) override {
    rate(request, view);
    if (config_.temperature == 0) return take(picker_->pick(scores_, draws));
    const auto [worst, best] = std::minmax_element(scores_.begin(), scores_.end());
    const double width = *best > *worst ? *best - *worst : 1;
    scaled_.clear();
    for (const double score : scores_) scaled_.push_back((score - *worst) / width);
    return take(picker_->pick(scaled_, draws));
  }
  std::optional<std::size_t> picked_rank() const override { return rated_[picked_].rank; }
  std::span<const double> scores() const override { return scores_; }

  bool follows_admitted() const override { return refreshes_late_; }
  void admitted(const signals::RequestView& request, const signals::View& view) override {
    Joined joined{.at = view.now()};
    for (std::size_t i = 0; i < view.size(); ++i) {
      for (std::size_t rank = 0; rank < view.num_ranks(i); ++rank) {
        joined.rated.push_back(found(request, view, i, rank));
      }
    }
    joined_.insert_or_assign(request.id().value, std::move(joined));
  }
  void dropped(sim::RequestId id) override { joined_.erase(id.value); }
  void learn(const signals::RequestView& request, sim::InstanceId) override {
    if (refreshes_late_) joined_.erase(request.id().value);
    if (charges_.size() <= request.id().index()) charges_.resize(request.id().index() + 1);
    const Rated& chosen = rated_[picked_];
    Charge& charge = charges_[request.id().index()];
    charge.rank = chosen.rank;
    charge.blocks = blocks_of(request);
    charge.uncached_blocks = std::max(prefill_blocks_of(request) - held_blocks(chosen), 0.0);
    Load& load = load_of(chosen.instance, chosen.rank);
    load.prefill_blocks += charge.uncached_blocks;
    load.blocks += charge.blocks;
    ++load.requests;
  }
  void first_token(sim::RequestId id, sim::InstanceId instance) override {
    Charge& charge = charges_[id.index()];
    load_of(instance, charge.rank).prefill_blocks -= charge.uncached_blocks;
    charge.uncached_blocks = 0;
  }
  void finished(sim::RequestId id, sim::InstanceId instance) override {
    first_token(id, instance);
    Load& load = load_of(instance, charges_[id.index()].rank);
    load.blocks -= charges_[id.index()].blocks;
    --load.requests;
  }

  void change(const Router& to) override { config_ = std::get<KvCost>(to); }

 private:
  /// The load of the requests in flight on a rank. Whole numbers, so sums are exact.
  struct Load {
    double prefill_blocks = 0;  ///< to be computed before their first tokens
    double blocks = 0;          ///< of their prompts
    double requests = 0;
  };
  struct Charge {
    std::size_t rank = 0;
    double blocks = 0;
    double uncached_blocks = 0;
  };
  /// A rank of an instance of the view.
  struct Rated {
    sim::InstanceId instance;
    std::size_t rank = 0;
    double overlap = 0;                     ///< blocks of the request in its KV memory
    std::optional<signals::Tiers> tiers{};  ///< the same in its other tiers; unset: it has none
  };

  static std::pair<std::uint32_t, std::size_t> place_of(const Rated& rated) {
    return {rated.instance.value, rated.rank};
  }

  /// A request in a queue.
  struct Joined {
    sim::Time at;
    std::vector<Rated> rated{};  ///< with the overlaps of that instant; by place, as in the view
  };

  double blocks_of(const signals::RequestView& request) const {
    return std::ceil(request.input_tokens() / block_size_tokens_);
  }
  // A power of two divides exactly, so sums of these are exact for the usual sizes.
  double prefill_blocks_of(const signals::RequestView& request) const {
    return config_.prefill_unit == PrefillUnit::tokens ? request.input_tokens() / block_size_tokens_
                                                       : blocks_of(request);
  }
  // Events report the blocks of all tiers; what was sent is known to be nowhere else.
  Rated found(const signals::RequestView& request, const signals::View& view, std::size_t i,
              std::size_t rank) const {
    Rated there{.instance = view.id(i), .rank = rank};
    if (config_.overlap == Overlap::sent) {
      there.overlap = static_cast<double>(view.sent_blocks(request, i, rank));
      return there;
    }
    there.overlap = static_cast<double>(view.cached_blocks(request, i, rank));
    if (const signals::Tiers* tiers = view.tiers(i)) there.tiers = *tiers;
    return there;
  }
  /// Blocks in KV memory that those in the other tiers are worth.
  double lower_blocks(const Rated& rated) const {
    if (!rated.tiers) return 0;
    return config_.host_cache_hit_weight * static_cast<double>(rated.tiers->host_blocks) +
           config_.disk_cache_hit_weight * static_cast<double>(rated.tiers->disk_blocks);
  }
  double held_blocks(const Rated& rated) const { return rated.overlap + lower_blocks(rated); }
  /// What was seen when the request joined its queue; null if that is too long ago.
  const Joined* fresh(const signals::RequestView& request, const signals::View& view) const {
    const auto joined = joined_.find(request.id().value);
    if (joined == joined_.end() || view.now() - joined->second.at > refresh_after_) return nullptr;
    return &joined->second;
  }
  /// The rank as it was seen; null if it was not there.
  static const Rated* seen(const Joined& joined, sim::InstanceId instance, std::size_t rank) {
    const Rated wanted{instance, rank};
    const auto then = std::ranges::lower_bound(joined.rated, place_of(wanted), {}, place_of);
    return then != joined.rated.end() && place_of(*then) == place_of(wanted) ? &*then : nullptr;
  }
  Load& load_of(sim::InstanceId instance, std::size_t rank) {
    if (loads_.size() <= instance.index()) loads_.resize(instance.index() + 1);
    std::vector<Load>& there = loads_[instance.index()];
    if (there.size() <= rank) there.resize(rank + 1);
    return there[rank];
  }
  sim::InstanceId take(std::size_t picked) {
    picked_ = picked;
    return rated_[picked].instance;
  }

  void rate(const signals::RequestView& request, const signals::View& view) {
    rated_.clear();
    const Joined* const joined = refreshes_late_ ? fresh(request, view) : nullptr;
    double least_prefill = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < view.size(); ++i) {
      const std::size_t ranks = view.num_ranks(i);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Rated* const then = joined ? seen(*joined, view.id(i), rank) : nullptr;
        rated_.push_back(then ? *then : found(request, view, i, rank));
        least_prefill = std::min(least_prefill, load_of(view.id(i), rank).prefill_blocks);
      }
    }
    const double blocks = blocks_of(request);
    const double uncached = prefill_blocks_of(request);
    scores_.clear();
    for (const Rated& rated : rated_) {
      const Load& load = load_of(rated.instance, rated.rank);
      double credit = config_.overlap_credit;
      if (config_.overlap_decay > 0) {
        const double excess = load.prefill_blocks - least_prefill;
        credit /= 1 + config_.overlap_decay * excess / std::max(blocks, 1.0);
      }
      const double lower = lower_blocks(rated);
      // With tiers, a prompt counts for at least what of it is there.
      const double prompt = rated.tiers ? std::max(uncached, held_blocks(rated)) : uncached;
      const double saved = credit * rated.overlap + lower;
      const double prefill =
          config_.prefill_load_scale * std::max(load.prefill_blocks + prompt - saved, 0.0);
      const double decode = load.blocks + blocks;
      const double counted = config_.request_weight * load.requests;
      double cost =
          config_.rule == CostRule::product ? prefill * (decode + 1) : prefill + decode + counted;
      if (!config_.track_prefill) {
        const double credited = config_.overlap_credit;
        const double held = credited > 0 ? credited * rated.overlap + lower : 0;
        cost = std::max(decode + counted - held, 0.0);
      }
      scores_.push_back(-cost);
    }
  }

  KvCost config_;
  double block_size_tokens_;
  std::unique_ptr<Picker> picker_;
  std::vector<std::vector<Load>> loads_;  // by instance of the fleet and rank
  std::vector<Charge> charges_;           // per request id
  bool refreshes_late_;
  sim::Time refresh_after_;
  std::unordered_map<std::uint32_t, Joined> joined_;  // empty unless `refreshes_late_`
  // Of the last view:
  std::vector<Rated> rated_;
  std::size_t picked_ = 0;
  std::vector<double> scores_;  // minus the cost
  std::vector<double> scaled_;  // to [0, 1]
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const KvCost& config, std::int64_t block_size_tokens) {
  return std::make_unique<KvCostPolicy>(config, block_size_tokens);
}

}  // namespace spillway::router
