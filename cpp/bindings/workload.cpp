#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "workload/column_files.h"
#include "workload/generate.h"
#include "workload/policies.h"
#include "workload/requests.h"
#include "workload/synthetic.h"

namespace spillway::bindings {

namespace {

using workload::Requests;
using workload::Trace;

template <class T>
using Column = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <class T>
std::vector<T> copied(const Column<T>& column) {
  return {column.data(), column.data() + column.size()};
}

template <class T>
py::bytes bytes_of(const std::vector<T>& column) {
  return {reinterpret_cast<const char*>(column.data()), column.size() * sizeof(T)};
}

// SHA-256 over all data that a run can depend on, independent of the file's format.
std::string digest(const Requests& requests) {
  const py::object hash = py::module_::import("hashlib").attr("sha256")();
  const auto update = [&](const py::bytes& part) { hash.attr("update")(part); };
  std::vector<std::int64_t> arrival;
  arrival.reserve(requests.arrival.size());
  for (const sim::Time time : requests.arrival) arrival.push_back(time.ns);
  update(bytes_of(arrival));
  update(bytes_of(requests.input_tokens));
  update(bytes_of(requests.output_tokens));
  update(bytes_of(requests.tenant));
  update(bytes_of(requests.slo_class));
  update(bytes_of(requests.segment_begin));
  std::vector<std::uint64_t> segments;
  for (const workload::Segment& segment : requests.segments) {
    segments.insert(segments.end(), {segment.content, segment.tokens});
  }
  update(bytes_of(segments));
  if (!requests.answer.empty()) update(bytes_of(requests.answer));
  if (!requests.warm_tokens.empty()) {
    update(py::bytes("warm"));
    update(bytes_of(requests.warm_tokens));
  }
  if (!requests.max_tokens.empty()) {
    update(py::bytes("max_tokens"));
    update(bytes_of(requests.max_tokens));
  }
  if (!requests.accepted.empty()) {
    update(bytes_of(requests.accepted_begin));
    update(bytes_of(requests.accepted));
  }
  if (!requests.model.empty()) {
    update(py::bytes("model\n"));
    update(bytes_of(requests.model));
    for (const std::string& name : requests.models) update(py::bytes(name + '\n'));
  }
  for (const workload::Attribute& attribute : requests.attributes) {
    update(py::bytes("attribute\n" + attribute.name + '\n'));
    update(bytes_of(attribute.code));
    for (const std::string& value : attribute.values) update(py::bytes(value + '\n'));
  }
  for (const auto* names : {&requests.tenants, &requests.slo_classes, &requests.request_id}) {
    for (const std::string& name : *names) update(py::bytes(name + '\n'));
    update(py::bytes("\n"));
  }
  return py::cast<std::string>(hash.attr("hexdigest")());
}

// The shared segments of each prompt: those of row i are [segment_begin[i], segment_begin[i + 1]).
void set_segments(Requests& requests, const Column<std::uint32_t>& segment_begin,
                  const Column<std::uint64_t>& segment_content,
                  const Column<std::uint32_t>& segment_tokens) {
  const std::vector<std::uint32_t> begin = copied(segment_begin);
  const std::size_t count = static_cast<std::size_t>(segment_content.size());
  const bool fits = begin.empty() ? count == 0
                                  : begin.size() == requests.size() + 1 && begin.front() == 0 &&
                                        begin.back() == count && std::ranges::is_sorted(begin);
  if (!fits || segment_tokens.size() != segment_content.size()) {
    throw sim::UsageError(
        "segment_begin must be empty or have one ascending offset per request and the number of "
        "segments at the end; segment_content and segment_tokens must have the same length");
  }
  requests.segment_begin = begin;
  requests.segments.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests.segments.push_back({segment_content.data()[i], segment_tokens.data()[i]});
  }
}

py::object trace_of(std::shared_ptr<const Requests> requests, const std::string& file) {
  Trace trace;
  trace.file = file;
  trace.sha256 = digest(*requests);
  trace.rows = static_cast<std::int64_t>(requests->size());
  trace.requests = std::move(requests);
  return to_python_class(std::move(trace));
}

// A name, the number of each request's value, and the values.
using AttributeColumn = std::tuple<std::string, Column<std::uint32_t>, std::vector<std::string>>;

py::object make_trace(
    const Column<std::int64_t>& arrival_ns, const Column<std::int32_t>& input_tokens,
    const Column<std::int32_t>& output_tokens, const Column<std::uint16_t>& tenant,
    const std::vector<std::string>& tenants, const Column<std::uint16_t>& slo_class,
    const std::vector<std::string>& slo_classes, const Column<std::uint32_t>& segment_begin,
    const Column<std::uint64_t>& segment_content, const Column<std::uint32_t>& segment_tokens,
    const std::vector<std::string>& request_id, const std::string& file,
    const std::optional<Column<std::uint64_t>>& answer,
    const std::optional<Column<std::int32_t>>& warm_tokens,
    const std::optional<Column<std::int32_t>>& max_tokens,
    const std::vector<AttributeColumn>& attributes,
    const std::optional<Column<std::uint16_t>>& model, const std::vector<std::string>& models,
    const std::optional<Column<std::uint32_t>>& accepted_begin,
    const std::optional<Column<std::uint8_t>>& accepted) {
  auto requests = std::make_shared<Requests>();
  for (const std::int64_t ns : copied(arrival_ns)) requests->arrival.push_back({ns});
  requests->input_tokens = copied(input_tokens);
  requests->output_tokens = copied(output_tokens);
  requests->tenant = copied(tenant);
  requests->slo_class = copied(slo_class);
  requests->tenants = tenants;
  requests->slo_classes = slo_classes;
  requests->request_id = request_id;
  set_segments(*requests, segment_begin, segment_content, segment_tokens);
  if (answer) requests->answer = copied(*answer);
  if (warm_tokens) requests->warm_tokens = copied(*warm_tokens);
  if (max_tokens) requests->max_tokens = copied(*max_tokens);
  for (const auto& [name, code, values] : attributes) {
    requests->attributes.push_back({name, copied(code), values});
  }
  if (model) requests->model = copied(*model);
  requests->models = models;
  if (accepted) requests->accepted = copied(*accepted);
  if (accepted_begin) requests->accepted_begin = copied(*accepted_begin);
  std::vector<sim::Violation> violations;
  workload::check_requests(*requests, file.empty() ? "trace" : file, violations);
  if (!violations.empty()) throw sim::ConfigError(std::move(violations));
  return trace_of(std::move(requests), file);
}

py::object make_streamed_trace(const std::array<std::string, 5>& paths, std::int64_t rows,
                               const std::string& sha256, const std::vector<std::string>& tenants,
                               const std::vector<std::string>& slo_classes,
                               const std::string& file) {
  auto requests = std::make_shared<Requests>();
  requests->tenants = tenants;
  requests->slo_classes = slo_classes;
  requests->files = std::make_shared<const workload::ColumnFiles>(paths, rows);
  Trace trace;
  trace.file = file;
  trace.sha256 = sha256;
  trace.rows = rows;
  trace.requests = std::move(requests);
  return to_python_class(std::move(trace));
}

// The requests after the first `count` transforms.
std::shared_ptr<const Requests> transformed(const Settings& settings, std::size_t count,
                                            std::uint64_t seed) {
  Trace trace = settings.as<Trace>();
  if (trace.requests && trace.requests->files) {
    throw sim::UsageError("the trace is streamed from its file: read it without stream=True");
  }
  if (!trace.requests || trace.requests->size() == 0) {
    throw sim::UsageError("the trace holds no requests, only their digest: read it again");
  }
  trace.transforms.resize(std::min(count, trace.transforms.size()));
  return workload::transformed(trace, seed);
}

template <class T, class Get>
py::array_t<T> column_of(const Requests& requests, Get get) {
  py::array_t<T> column(static_cast<py::ssize_t>(requests.size()));
  T* out = column.mutable_data();
  for (std::size_t row = 0; row < requests.size(); ++row) out[row] = static_cast<T>(get(row));
  return column;
}

// The columns under the argument names of make_trace.
py::dict trace_columns(const Settings& settings) {
  py::dict result;
  const auto& trace = settings.as<Trace>();
  if (!trace.requests || trace.requests->files) return result;
  const Requests& requests = *trace.requests;
  result["arrival_ns"] =
      column_of<std::int64_t>(requests, [&](auto row) { return requests.arrival[row].ns; });
  result["input_tokens"] =
      column_of<std::int32_t>(requests, [&](auto row) { return requests.input_tokens[row]; });
  result["output_tokens"] =
      column_of<std::int32_t>(requests, [&](auto row) { return requests.output_tokens[row]; });
  result["tenant"] =
      column_of<std::uint16_t>(requests, [&](auto row) { return requests.tenant[row]; });
  result["tenants"] = requests.tenants;
  result["slo_class"] =
      column_of<std::uint16_t>(requests, [&](auto row) { return requests.slo_class[row]; });
  result["slo_classes"] = requests.slo_classes;
  result["segment_begin"] = py::array_t<std::uint32_t>(
      static_cast<py::ssize_t>(requests.segment_begin.size()), requests.segment_begin.data());
  py::array_t<std::uint64_t> content(static_cast<py::ssize_t>(requests.segments.size()));
  py::array_t<std::uint32_t> tokens(content.size());
  for (std::size_t i = 0; i < requests.segments.size(); ++i) {
    content.mutable_data()[i] = requests.segments[i].content;
    tokens.mutable_data()[i] = requests.segments[i].tokens;
  }
  result["segment_content"] = content;
  result["segment_tokens"] = tokens;
  if (!requests.answer.empty()) {
    result["answer"] =
        column_of<std::uint64_t>(requests, [&](auto row) { return requests.answer[row]; });
  }
  if (!requests.warm_tokens.empty()) {
    result["warm_tokens"] =
        column_of<std::int32_t>(requests, [&](auto row) { return requests.warm_tokens[row]; });
  }
  if (!requests.max_tokens.empty()) {
    result["max_tokens"] =
        column_of<std::int32_t>(requests, [&](auto row) { return requests.max_tokens[row]; });
  }
  if (!requests.model.empty()) {
    result["model"] =
        column_of<std::uint16_t>(requests, [&](auto row) { return requests.model[row]; });
    result["models"] = requests.models;
  }
  if (!requests.accepted_begin.empty()) {
    result["accepted_begin"] = py::array_t<std::uint32_t>(
        static_cast<py::ssize_t>(requests.accepted_begin.size()), requests.accepted_begin.data());
    result["accepted"] = py::array_t<std::uint8_t>(
        static_cast<py::ssize_t>(requests.accepted.size()), requests.accepted.data());
  }
  if (!requests.attributes.empty()) {
    py::list attributes;
    for (const workload::Attribute& attribute : requests.attributes) {
      const py::array_t<std::uint32_t> code(static_cast<py::ssize_t>(attribute.code.size()),
                                            attribute.code.data());
      attributes.append(py::make_tuple(attribute.name, code, attribute.values));
    }
    result["attributes"] = attributes;
  }
  result["request_id"] = requests.request_id;
  result["file"] = trace.file;
  return result;
}

}  // namespace

void bind_workload(py::module_& module) {
  module.def("_has_requests", [](const Settings& trace) {
    const auto& requests = trace.as<Trace>().requests;
    return requests && !requests->files;
  });
  module.def("_columns", &trace_columns);
  module.def(
      "_transformed",
      [](const Settings& trace, std::uint64_t seed) {
        return trace_of(transformed(trace, trace.as<Trace>().transforms.size(), seed), "");
      },
      py::arg("trace"), py::arg("seed"), "The trace's requests after its transforms, as a trace.");
  module.def(
      "_generated",
      [](const Settings& synthetic, std::uint64_t seed) {
        return trace_of(workload::generate(synthetic.as<workload::Synthetic>(), seed, 1,
                                           [] { return PyErr_CheckSignals() != 0; }),
                        "");
      },
      py::arg("synthetic"), py::arg("seed"), "The requests of a synthetic workload, as a trace.");
  module.def(
      "_outline",
      [](const Settings& trace, std::size_t num_transforms) {
        const auto requests = transformed(trace, num_transforms, 0);
        py::dict outline;
        outline["rows"] = requests->size();
        outline["first_s"] = sim::to_seconds(requests->arrival.front());
        outline["last_s"] = sim::to_seconds(requests->arrival.back());
        outline["length_s"] = sim::to_seconds(workload::length_of(*requests));
        return outline;
      },
      py::arg("trace"), py::arg("num_transforms"),
      "Number and times of the trace's requests after its first transforms, under seed 0.");
  module.def("make_trace", &make_trace, py::kw_only(), py::arg("arrival_ns"),
             py::arg("input_tokens"), py::arg("output_tokens"), py::arg("tenant"),
             py::arg("tenants"), py::arg("slo_class"), py::arg("slo_classes"),
             py::arg("segment_begin"), py::arg("segment_content"), py::arg("segment_tokens"),
             py::arg("request_id"), py::arg("file"), py::arg("answer") = py::none(),
             py::arg("warm_tokens") = py::none(), py::arg("max_tokens") = py::none(),
             py::arg("attributes") = std::vector<AttributeColumn>(), py::arg("model") = py::none(),
             py::arg("models") = std::vector<std::string>(), py::arg("accepted_begin") = py::none(),
             py::arg("accepted") = py::none(),
             "A Trace from columns, checked; see spillway.trace for the public form.");
  module.def("_make_streamed_trace", &make_streamed_trace, py::kw_only(), py::arg("paths"),
             py::arg("rows"), py::arg("sha256"), py::arg("tenants"), py::arg("slo_classes"),
             py::arg("file"),
             "A Trace whose columns, which were checked, stay in files (see ColumnFiles).");
}

}  // namespace spillway::bindings
