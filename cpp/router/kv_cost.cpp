#include "router/kv_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "router/pickers/policies.h"

namespace spillway::router {

namespace {

class KvCostPolicy final : public RoutingPolicy {
 public:
  KvCostPolicy(const KvCost& config, std::int64_t block_size_tokens)
      : config_(config),
        block_size_tokens_(static_cast<double>(block_size_tokens)),
        picker_(config.temperature == 0 ? make(Best{Ties::random})
                                        : make(Softmax{config.temperature})) {}

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, sim::Time,
                       sim::Draws& draws) override {
    rate(request, view);
    if (config_.temperature == 0) return view.id(picker_->pick(scores_, draws));
    const auto [worst, best] = std::minmax_element(scores_.begin(), scores_.end());
    const double width = *best > *worst ? *best - *worst : 1;
    scaled_.clear();
    for (const double score : scores_) scaled_.push_back((score - *worst) / width);
    return view.id(picker_->pick(scaled_, draws));
  }
  std::span<const double> scores() const override { return scores_; }

  void learn(const signals::RequestView& request, sim::InstanceId chosen) override {
    if (charges_.size() <= request.id().index()) charges_.resize(request.id().index() + 1);
    if (loads_.size() <= chosen.index()) loads_.resize(chosen.index() + 1);
    const auto found = std::find(rated_.begin(), rated_.end(), chosen) - rated_.begin();
    Charge& charge = charges_[request.id().index()];
    charge.blocks = blocks_of(request);
    charge.uncached_blocks =
        std::max(charge.blocks - overlaps_[static_cast<std::size_t>(found)], 0.0);
    Load& load = loads_[chosen.index()];
    load.prefill_blocks += charge.uncached_blocks;
    load.blocks += charge.blocks;
    ++load.requests;
  }
  void first_token(sim::RequestId id, sim::InstanceId instance) override {
    Charge& charge = charges_[id.index()];
    loads_[instance.index()].prefill_blocks -= charge.uncached_blocks;
    charge.uncached_blocks = 0;
  }
  void finished(sim::RequestId id, sim::InstanceId instance) override {
    first_token(id, instance);
    Load& load = loads_[instance.index()];
    load.blocks -= charges_[id.index()].blocks;
    --load.requests;
  }

 private:
  /// What the requests in flight on an instance amount to. Whole numbers, so sums are exact.
  struct Load {
    double prefill_blocks = 0;  ///< to be computed before their first tokens
    double blocks = 0;          ///< of their prompts
    double requests = 0;
  };
  struct Charge {
    double blocks = 0;
    double uncached_blocks = 0;
  };

  double blocks_of(const signals::RequestView& request) const {
    return std::ceil(request.input_tokens() / block_size_tokens_);
  }

  void rate(const signals::RequestView& request, const signals::View& view) {
    const std::size_t n = view.size();
    rated_.resize(n);
    overlaps_.resize(n);
    scores_.resize(n);
    double least_prefill = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < n; ++i) {
      rated_[i] = view.id(i);
      if (loads_.size() <= rated_[i].index()) loads_.resize(rated_[i].index() + 1);
      overlaps_[i] =
          static_cast<double>(config_.overlap == Overlap::sent ? view.sent_blocks(request, i)
                                                               : view.cached_blocks(request, i));
      least_prefill = std::min(least_prefill, loads_[rated_[i].index()].prefill_blocks);
    }
    const double blocks = blocks_of(request);
    for (std::size_t i = 0; i < n; ++i) {
      const Load& load = loads_[rated_[i].index()];
      double credit = config_.overlap_credit;
      if (config_.overlap_decay > 0) {
        const double excess = load.prefill_blocks - least_prefill;
        credit /= 1 + config_.overlap_decay * excess / std::max(blocks, 1.0);
      }
      const double prefill = config_.prefill_load_scale *
                             std::max(load.prefill_blocks + blocks - credit * overlaps_[i], 0.0);
      const double decode = load.blocks + blocks;
      const double cost = config_.rule == CostRule::product
                              ? prefill * (decode + 1)
                              : prefill + decode + config_.request_weight * load.requests;
      scores_[i] = -cost;
    }
  }

  KvCost config_;
  double block_size_tokens_;
  std::unique_ptr<Picker> picker_;
  std::vector<Load> loads_;      // per instance of the fleet
  std::vector<Charge> charges_;  // per request id
  // Of the last view:
  std::vector<sim::InstanceId> rated_;
  std::vector<double> overlaps_;
  std::vector<double> scores_;  // minus the cost
  std::vector<double> scaled_;  // to [0, 1]
};

}  // namespace

std::unique_ptr<RoutingPolicy> make(const KvCost& config, std::int64_t block_size_tokens) {
  return std::make_unique<KvCostPolicy>(config, block_size_tokens);
}

}  // namespace spillway::router
