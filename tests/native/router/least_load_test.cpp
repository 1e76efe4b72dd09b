// The tournament of loads against a scan of all instances: same choices, same draws.
#include "router/least_load.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.h"
#include "fake_instance.h"
#include "signals/load_changes.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"

using namespace spillway;
using router::LeastLoad;
using router::Ties;
using sim::Draws;
using sim::InstanceId;
using sim::Stream;

namespace {

std::int64_t waiting(const signals::View& view, std::size_t i) { return view.occupancy(i).waiting; }

/// A fleet whose changes are noted, and two readers of it: one follows them, the other does not.
class Fleet {
 public:
  Fleet(std::size_t size, router::Load load, Ties ties)
      : fakes_(size),
        instances_(fakes_.sources()),
        in_flight_(size),
        changes_(size),
        following_(load, ties),
        scanning_(load, ties) {}

  std::size_t size() const { return in_flight_.size(); }
  void change(std::size_t i, Draws& draws) {
    changes_.add(InstanceId{i});  // before the change or after it, and once or twice
    fakes_[i].reported.waiting = static_cast<std::int32_t>(draws.below(3));
    fakes_[i].reported.running = static_cast<std::int32_t>(draws.below(3));
    in_flight_[i] = static_cast<std::int32_t>(draws.below(2));
    if (draws.below(3) == 0) changes_.add(InstanceId{i});
  }
  // At least one instance stays ready.
  void resize(Draws& draws) {
    ready_.clear();
    const std::size_t kept = draws.below(size());
    for (std::size_t i = 0; i < size(); ++i) {
      if (i == kept || draws.below(2) == 0) ready_.push_back(InstanceId{i});
    }
    if (ready_.size() == size()) ready_.clear();
    changes_.add_all();
  }
  void decide(std::uint64_t row) {
    const signals::Sources live{.instances = instances_, .ready = ready_};
    const signals::Sources followed{
        .instances = instances_, .load_changes = &changes_, .ready = ready_};
    const signals::LocalState local{.in_flight = in_flight_};
    Draws draws(1, Stream::router, row);
    Draws same_draws(1, Stream::router, row);
    const InstanceId expected = scanning_.pick({live, local, {}}, draws);
    const InstanceId found = following_.pick({followed, local, {}}, same_draws);
    check(found == expected, "the same instance");
    check(draws.uniform() == same_draws.uniform(), "the same number of draws");
  }

 private:
  FakeFleet fakes_;
  std::vector<signals::SignalSource*> instances_;
  std::vector<std::int32_t> in_flight_;
  std::vector<InstanceId> ready_;  // empty: all
  signals::LoadChanges changes_;
  LeastLoad following_;
  LeastLoad scanning_;
};

void random_fleets() {
  constexpr std::array<router::Load, 2> kLoads{router::effective_load, waiting};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Draws draws(seed, Stream::arrivals, 0);
    const std::size_t size = 1 + draws.below(draws.below(2) == 0 ? 9 : 70);
    Fleet fleet(size, kLoads[draws.below(2)], draws.below(2) == 0 ? Ties::first : Ties::random);
    for (std::uint64_t row = 0; row < 100; ++row) {
      // Sometimes more changes than are kept.
      for (std::uint64_t left = draws.below(draws.below(5) == 0 ? 3 * size : 4); left > 0; --left) {
        fleet.change(draws.below(size), draws);
      }
      if (draws.below(8) == 0) fleet.resize(draws);
      fleet.decide(row);
    }
  }
}

// Only a view of all ready instances names its changes: a restriction by a decision is not noted.
void restricted_views_are_scanned() {
  FakeFleet fakes(3);
  const std::vector<signals::SignalSource*> instances = fakes.sources();
  const std::vector<std::int32_t> in_flight(3);
  const signals::LoadChanges changes(3);
  const signals::Sources sources{.instances = instances, .load_changes = &changes};
  const signals::LocalState local{.in_flight = in_flight};
  const signals::View view(sources, local, {});
  const std::vector<InstanceId> last{InstanceId{2}};
  check(view.load_changes() == &changes && !view.of(last).load_changes(), "changes of the fleet");
  LeastLoad least(router::effective_load, Ties::first);
  Draws draws(1, Stream::router, 0);
  check(least.pick(view, draws) == InstanceId{0}, "the first of equals");
  check(least.pick(view.of(last), draws) == InstanceId{2}, "the only candidate");
}

CASES(random_fleets, restricted_views_are_scanned);

}  // namespace
