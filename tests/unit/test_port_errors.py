"""What callers are told, the JSON codec, single flight and the check for foreign pages."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.http.origin import check_origin, host_name
from iris_controller.rpc import errors
from iris_controller.rpc.errors import HTTP_STATUS, RpcError, as_rpc_error, clean
from iris_controller.rpc.json_codec import from_json, to_json
from iris_controller.rpc.requests import SingleFlight
from iris_core.contracts import ConnectFailed, IrisError, RpcFailed, UsageFailed
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import controller_pb2

# Errors --------------------------------------------------------------------------------------------------------------


def test_every_grpc_code_has_a_status() -> None:
    assert set(HTTP_STATUS) == {code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK}
    with pytest.raises(ValueError, match="no gRPC code"):
        RpcError("OK", "fine")


@pytest.mark.parametrize(
    ("error", "status", "http"),
    [
        (errors.invalid("name", "bad"), "INVALID_ARGUMENT", 400),
        (errors.not_found("/a/b"), "NOT_FOUND", 404),
        (errors.precondition("/a/b", "not now"), "FAILED_PRECONDITION", 412),
        (errors.exists("/a/b", "there"), "ALREADY_EXISTS", 409),
        (errors.unavailable("down"), "UNAVAILABLE", 503),
        (errors.exhausted("full"), "RESOURCE_EXHAUSTED", 429),
        (errors.exhausted("large", code="request_too_large"), "RESOURCE_EXHAUSTED", 413),
        (errors.denied("no"), "PERMISSION_DENIED", 403),
        (errors.unauthenticated("who"), "UNAUTHENTICATED", 401),
    ],
)
def test_helpers(error: RpcError, status: str, http: int) -> None:
    assert (error.status, error.http_status) == (status, http)
    assert error.grpc_code().name == status
    assert error.code
    assert as_rpc_error(error, "x") is error


def test_detail_and_json_say_the_same() -> None:
    error = errors.invalid("regex", "the bracket is open", position=0, hint="close it", subject="[", retry_after_ms=5)
    detail = error.detail()
    assert detail.HasField("position")
    assert (detail.field, detail.position, detail.hint, detail.subject) == ("regex", 0, "close it", "[")
    assert error.as_json() == {
        "status": "INVALID_ARGUMENT",
        "message": "the bracket is open",
        "code": "invalid",
        "subject": "[",
        "field": "regex",
        "position": 0,
        "hint": "close it",
        "retry_after_ms": "5",
    }
    assert "position" not in errors.invalid("regex", "bad").as_json()


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (
            ModelError("no such band", field="priority", position=3, hint="use batch"),
            "INVALID_ARGUMENT",
            "no such band",
        ),
        (RpcFailed("NOT_FOUND", "gone", subject="/a"), "NOT_FOUND", "gone"),
        (ConnectFailed("nobody there"), "UNAVAILABLE", "nobody there"),
        (UsageFailed("wrong"), "INVALID_ARGUMENT", "wrong"),
        (IrisError("cannot"), "FAILED_PRECONDITION", "cannot"),
    ],
)
def test_errors_of_ours_keep_their_words(raised: Exception, status: str, message: str) -> None:
    told = as_rpc_error(raised, "x")
    assert (told.status, told.message) == (status, message)


def test_an_unknown_exception_is_an_id_for_the_caller_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise RuntimeError("the secret is hunter2")
    except RuntimeError as error:
        told = as_rpc_error(error, "ControllerService/ListJobs")
    assert told.status == "INTERNAL"
    assert "hunter2" not in str(told.as_json())
    assert told.subject in told.message
    assert told.subject in caplog.text
    assert "hunter2" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@given(st.text(), st.text(), st.text(), st.text())
def test_whatever_is_said_is_one_line_and_fits_the_trailers(message: str, subject: str, field: str, hint: str) -> None:
    error = RpcError("NOT_FOUND", message * 200, subject=subject * 200, field=field * 200, hint=hint * 200)
    for text in (error.message, error.subject, error.field, error.hint):
        assert text.isprintable()
    size = 3 * len(error.message.encode()) + 4 * sum(len(value) for _, value in error.metadata()) // 3
    assert size < 7000
    json.dumps(error.as_json()).encode()


def test_clean_cuts_at_bytes_and_shows_that_it_did() -> None:
    assert clean("a\nb\x1b[0m\u202e", 100) == "a\\nb\\x1b[0m\\u202e"
    assert clean("é" * 100, 20) == "é" * 8 + "…"
    assert len(clean("x" * 10_000_000, 100)) == 98


# JSON ----------------------------------------------------------------------------------------------------------------


def parse(body: bytes | str) -> controller_pb2.LaunchJobRequest:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    found = asyncio.run(from_json(raw, controller_pb2.LaunchJobRequest))
    assert isinstance(found, controller_pb2.LaunchJobRequest)
    return found


def test_both_spellings_of_a_field_and_an_empty_body() -> None:
    assert parse('{"max_retries_failure": 3}') == parse('{"maxRetriesFailure": "3"}')
    assert parse("") == parse(" \n") == parse("{}") == controller_pb2.LaunchJobRequest()
    assert parse('{"priority_band": "PRIORITY_BAND_BATCH"}') == parse('{"priority_band": 4}')
    assert parse('{"entrypoint": {"workdir_files": {"a": "YQ=="}}}').entrypoint.workdir_files["a"] == b"a"
    assert parse('{"environment": {"env_vars": {"A": "ü\\u0000"}}}').environment.env_vars["A"] == "ü\0"


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ('{"constraints": [{"key": "a"}, {"op": "EQ"}]}', "did you mean 'CONSTRAINT_OP_EQ'?"),
        ('{"constraints": [{"op": "CONSTRAINT_OP_EXIST"}]}', "did you mean 'CONSTRAINT_OP_EXISTS'?"),
        ('{"existing_job_policy": "replace them all"}', "one of EXISTING_JOB_POLICY_ERROR, EXISTING_JOB_POLICY_KEEP"),
    ],
)
def test_an_unknown_name_of_a_value_gets_a_suggestion(body: str, hint: str) -> None:
    with pytest.raises(RpcError) as error:
        parse(body)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"nam": "x"}', "unknown field 'nam' in 'LaunchJobRequest'"),
        ('{"resources": {"cpus": 1}}', "unknown field 'cpus' in 'LaunchJobRequest.resources'"),
        ('{"constraints": [{"key": "a"}, {"kay": "b"}]}', "unknown field 'kay' in 'LaunchJobRequest.constraints[1]'"),
        ('{"a\\nb": 1}', "unknown field 'a\\nb'"),
        ("[]", "LaunchJobRequest must be a JSON object"),
        ("null", "must be a JSON object"),
        ("1", "must be a JSON object"),
        ('{"environment": []}', "LaunchJobRequest.environment must be a JSON object"),
        ('{"entrypoint": {"workdir_files": {"a": "!!"}}}', "workdir_files must be base64"),
        ('{"entrypoint": {"workdir_files": {"a": 1}}}', "workdir_files must be base64"),
        ('{"name": 1}', "name"),
        ('{"name": "\\ud800"}', "surrogate"),
        ('{"priority_band": "PRIORITY\\uDFFF"}', "surrogate"),
        ('{"a\\ud800": 1}', "lone surrogate"),
        ('{"environment": {"env_vars": {"\\udfff": "x"}}}', "lone surrogate"),
        ("\ud800", "not UTF-8"),
        ('{"name": "a", "name": "b"}', "the field 'name' is there twice"),
        ('{"name": "a"', "not JSON"),
        ('{"replicas": 1e400}', "replicas"),
        ('{"replicas": 99999999999}', "out of range"),
        ('{"replicas": NaN}', "replicas"),
        ('{"replicas": ' + "9" * 5000 + "}", "not a JSON iris.v1.LaunchJobRequest"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"ports": "x"}', "ports"),
        ('{"priority_band": "FOO"}', "LaunchJobRequest.priority_band has no value 'FOO'"),
        ('{"priority_band": "a\\nb"}', "has no value 'a\\nb'"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"\x00", "not JSON"),
    ],
)
def test_a_bad_body_is_one_clear_line(body: bytes | str, says: str) -> None:
    with pytest.raises(RpcError) as error:
        parse(body)
    assert error.value.status == "INVALID_ARGUMENT"
    assert says.lower() in error.value.message.lower()
    assert error.value.message.isprintable()


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(RpcError) as error:
        parse('{"replcas": 1}')
    assert error.value.field == "replcas"
    assert error.value.hint == "did you mean 'replicas'?"


def test_output_keeps_the_names_of_the_protos() -> None:
    message = controller_pb2.ListJobsResponse(total_count=3, next_page_token="é")
    assert json.loads(asyncio.run(to_json(message))) == {"total_count": "3", "next_page_token": "é"}
    many = controller_pb2.ListJobsResponse(
        jobs=[controller_pb2.JobStatus(job_id=f"/a/{number}", num_tasks=1) for number in range(5000)]
    )
    line = asyncio.run(to_json(many))
    assert b"\n" not in line
    assert len(json.loads(line)["jobs"]) == 5000


# Single flight -------------------------------------------------------------------------------------------------------


def test_repeats_wait_for_the_first_answer() -> None:
    async def main() -> None:
        flight = SingleFlight()
        release = asyncio.Event()
        runs: list[int] = []

        async def work() -> str:
            runs.append(1)
            await release.wait()
            return "answer"

        calls = [asyncio.create_task(flight.run("k", work)) for _ in range(10)]
        other = asyncio.create_task(flight.run("other", work))
        await asyncio.sleep(0)
        calls[5].cancel()
        await asyncio.sleep(0)
        release.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [answer for answer in found if answer == "answer"] == ["answer"] * 9
        assert await other == "answer"
        assert len(runs) == 2
        assert len(flight) == 0
        # It remembers nothing.
        assert await flight.run("k", work) == "answer"
        assert len(runs) == 3

    asyncio.run(main())


def test_an_error_is_the_answer_of_the_repeats_too() -> None:
    async def main() -> None:
        flight = SingleFlight()
        release = asyncio.Event()

        async def work() -> str:
            await release.wait()
            raise RpcError("ALREADY_EXISTS", "there")

        calls = [asyncio.create_task(flight.run("k", work)) for _ in range(3)]
        await asyncio.sleep(0)
        release.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(error) for error in found] == ["there"] * 3
        assert len(flight) == 0

    asyncio.run(main())


def test_when_the_first_is_cancelled_a_waiter_takes_over() -> None:
    async def main() -> None:
        flight = SingleFlight()
        release = asyncio.Event()
        runs: list[int] = []

        async def work() -> int:
            runs.append(1)
            await release.wait()
            return len(runs)

        first = asyncio.create_task(flight.run("k", work))
        await asyncio.sleep(0)
        waiters = [asyncio.create_task(flight.run("k", work)) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        release.set()
        assert await asyncio.gather(*waiters) == [2, 2]
        assert len(runs) == 2

    asyncio.run(main())


# Foreign pages -------------------------------------------------------------------------------------------------------

OURS = "192.0.2.7:10000"


def check(**headers: str) -> None:
    check_origin({name.replace("_", "-"): value for name, value in headers.items()}, OURS, {"iris.example.org"})


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:10000", "LOCALHOST:1", "localhost.", "127.0.0.1:10000", "127.9.9.9", "[::1]:10000", "[::1]",
     "iris.example.org", "Iris.Example.Org:443", "192.0.2.7:10000", "192.0.2.7"],
)  # fmt: skip
def test_our_own_names(host: str) -> None:
    check(host=host)
    check(host=host, origin=f"http://{host}")
    check(host=host, sec_fetch_site="same-origin")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.8", "", " ", "[::1", "localhost:x",
     "localhost@evil.example", "::1", "[::2]", "0.0.0.0", "iris.example.org.evil.example", "127.0.0.1, localhost",
     "xlocalhost"],
)  # fmt: skip
def test_foreign_names(host: str) -> None:
    with pytest.raises(RpcError, match="Host") as error:
        check(host=host)
    assert error.value.http_status == 403
    with pytest.raises(RpcError):
        check_origin({}, OURS, ())


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "http://localhost:3000", "https://localhost:10001", "file://localhost:10000",
     "http://localhost:10000.evil.example", "http://localhost:10000@evil.example", "http://user@localhost:10000",
     "localhost:10000", "http://[localhost", "chrome-extension://localhost:10000"],
)  # fmt: skip
def test_foreign_origins(origin: str) -> None:
    with pytest.raises(RpcError, match="Origin"):
        check(host="localhost:10000", origin=origin)


def test_a_cross_site_fetch() -> None:
    with pytest.raises(RpcError, match="another site"):
        check(host="localhost", sec_fetch_site="Cross-Site")


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_header_breaks_the_check(host: str, origin: str) -> None:
    host_name(host)
    headers: dict[str, Any] = {"host": host, "origin": origin}
    try:
        check_origin(headers, OURS, ())
    except RpcError as error:
        assert error.http_status == 403
