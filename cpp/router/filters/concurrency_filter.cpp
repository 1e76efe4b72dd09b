#include "router/filters/concurrency_filter.h"

#include <cmath>

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

using signals::ConcurrencyMode;

class ConcurrencyPolicy final : public Filter {
 public:
  explicit ConcurrencyPolicy(const ConcurrencyFilter& config)
      : mode_(config.concurrency_mode),
        requests_(std::floor(config.max_concurrency * (1 + config.headroom))),
        tokens_(std::floor(config.max_token_concurrency * (1 + config.headroom))),
        rejects_(config.if_none == IfNone::reject) {}

  void keep(const signals::RequestView&, const signals::View& view, sim::Draws&,
            std::vector<bool>& kept) const override {
    keep_only(kept, [&](std::size_t i) {
      return (mode_ == ConcurrencyMode::tokens || view.in_flight(i) < requests_) &&
             (mode_ == ConcurrencyMode::requests ||
              static_cast<double>(view.in_flight_tokens(i)) < tokens_);
    });
  }
  bool rejects() const override { return rejects_; }

 private:
  ConcurrencyMode mode_;
  double requests_;
  double tokens_;
  bool rejects_;
};

}  // namespace

std::unique_ptr<Filter> make(const ConcurrencyFilter& config) {
  return std::make_unique<ConcurrencyPolicy>(config);
}

}  // namespace spillway::router
