#include "router/filters/slo_headroom.h"

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class SloHeadroomFilter final : public Filter {
 public:
  explicit SloHeadroomFilter(double exploration) : exploration_(exploration) {}

  void keep(const signals::RequestView& request, const signals::View& view, sim::Draws& draws,
            std::vector<bool>& kept) const override {
    const bool explores = exploration_ > 0 && draws.uniform() < exploration_;
    keep_fitting(kept, [&](std::size_t i) {
      const auto there = view.prediction(request, i);
      const bool fits = there && there->ttft_headroom_ms >= 0 && there->tpot_headroom_ms >= 0;
      return fits != explores;
    });
  }

 private:
  double exploration_;
};

}  // namespace

std::unique_ptr<Filter> make(const SloHeadroom& config) {
  return std::make_unique<SloHeadroomFilter>(config.exploration);
}

}  // namespace spillway::router
