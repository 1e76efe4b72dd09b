#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "instance/fallible.h"
#include "instance/group.h"
#include "instance/ingress/front_end_queue.h"
#include "instance/ingress/queue.h"
#include "instance/instance.h"
#include "instance/plant/policies.h"
#include "instance/ranks.h"
#include "instance/step_loop/lockstep.h"

namespace spillway::instance {

namespace {

std::unique_ptr<Instance> make_open(const InstanceGroup& group, sim::InstanceId id,
                                    const Environment& environment, std::vector<Engine*>& engines) {
  const auto make_one = [&](signals::SignalSource* reporter, const Environment& own) {
    return std::visit(
        [&](const auto& plant) { return make(plant, group, id, reporter, own, engines); },
        group.plant);
  };
  if (group.data_parallel_size == 1) return make_one(nullptr, environment);
  Environment common = environment;
  std::unique_ptr<Lockstep> lockstep;
  if (group.lockstep_ranks) {
    lockstep =
        std::make_unique<Lockstep>(static_cast<std::uint32_t>(engines.size()), environment.events);
    common.lockstep = lockstep.get();
  }
  auto ranks = std::make_unique<Ranks>(std::move(lockstep));
  for (std::int64_t i = 0; i < group.data_parallel_size; ++i) {
    ranks->add(make_one(ranks.get(), common));
  }
  return ranks;
}

IngressRules rules_of(const InstanceGroup& group) {
  return std::visit(
      [&](const auto& ingress) {
        if constexpr (requires { ingress.rules(0); }) {
          return ingress.rules(group.max_num_seqs * group.data_parallel_size);
        }
        return IngressRules{};
      },
      group.ingress);
}

std::unique_ptr<Instance> make_reliable(const InstanceGroup& group, sim::InstanceId id,
                                        const Environment& environment,
                                        std::vector<Engine*>& engines) {
  std::unique_ptr<Instance> instance;
  IngressQueue* ingress = nullptr;
  if (std::holds_alternative<Open>(group.ingress)) {
    instance = make_open(group, id, environment, engines);
  } else {
    const std::size_t first_reason =
        InstanceGroup::reasons.size() +
        workload::first_reason(std::type_identity<Ingress>{}, group.ingress.index());
    auto queue = std::make_unique<IngressQueue>(
        rules_of(group), first_reason, id, static_cast<std::uint32_t>(engines.size()), environment);
    queue->set_inner(make_open(group, id, queue->inner_environment(), engines));
    ingress = queue.get();
    instance = std::move(queue);
  }
  if (!group.front_end.is_on()) return instance;
  auto front_end = std::make_unique<FrontEndQueue>(group.front_end, ingress, id, environment);
  front_end->set_inner(std::move(instance));
  return front_end;
}

}  // namespace

std::unique_ptr<Instance> make(const InstanceGroup& group, sim::InstanceId id,
                               const Environment& environment, std::vector<Engine*>& engines) {
  const auto engine = static_cast<std::uint32_t>(engines.size());
  std::unique_ptr<Instance> instance = make_reliable(group, id, environment, engines);
  if (!environment.may_fail) return instance;
  return std::make_unique<Fallible>(std::move(instance), id, engine, environment);
}

}  // namespace spillway::instance
