"""Wrong files: refused with the line, or the rest taken where that is asked for."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.jobs.traces.load import load_trace
from hippo.jobs.traces.table import CHUNK

from .conftest import Reading

HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"
GOOD = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SWF_ROW = "{} {} 0 {} 4 -1 -1 4 -1 -1 1 3 1 -1 1 -1 -1 -1\n"
TASK = "j1,worker,{},Terminated,100.0,200.0,600.0,29.3,{},T4\n"
OWN = '{"hippo_jobs": 1, "jobs": [\n{"name": "a", "arrival_s": 0, "duration_s": 1},\n%s\n]}'
LLM = OWN % '{"name": "b", "arrival_s": 1, %s}'


def logged(detail: object) -> str:
    """A log of Philly's with two jobs in two lines, the second with this detail."""
    times = {"start_time": "2017-10-09 07:01:55", "end_time": "2017-10-09 08:01:55"}
    jobs = [
        {"jobid": name, "submitted_time": times["start_time"], "attempts": [{**times, "detail": each}]}
        for name, each in (("a", [{"ip": "m", "gpus": ["gpu0"]}]), ("b", detail))
    ]
    return "[" + ",\n".join(map(json.dumps, jobs)) + "]"


def packed(text: str) -> bytes:
    """A tar archive of one file, as PAI's tables are published."""
    stream, member = io.BytesIO(), tarfile.TarInfo("pai_task_table.csv")
    member.size = len(text)
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD + GOOD + "2017-10-09 07:01:55,-66.0,1,66.0,11cb48\n", r"line 3: a negative duration \(got -66.0\)"),
        (HEAD + GOOD + "2017-10-09 07:0", "line 3: 1 fields where the table has 5"),
        (HEAD + GOOD + "2017-13-09 07:01:55,66.0,1,66.0,11cb48\n" + GOOD, "line 3, timestamp: must be a date"),
        (
            HEAD + "2017-10-09 07:01:55,sixty,1,66.0,11cb48\n" + GOOD,
            r"line 2, duration: must be a number \(got 'sixty'",
        ),
        (HEAD + "2017-10-09 07:01:55,inf,1,66.0,11cb48\n" + GOOD, "line 2, duration: must be a finite number"),
        (
            HEAD + "2017-10-09 07:01:55,6,1.5,66.0,11cb48\n" + GOOD,
            r"line 2, num_gpus: must be a whole number \(got '1.5'",
        ),
        (HEAD + "2017-10-09 07:01:55,6,-8,66.0,11cb48\n" + GOOD, "line 2, num_gpus: must be a whole number"),
        (HEAD + '2017-10-09 07:01:55,6,"8,66.0,11cb48\n' + GOOD, "not valid CSV"),
        (
            HELIOS + "7,u,v,1,1,1,X,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:40:01,5,0\n",
            "line 2, end_time",
        ),
        (
            HELIOS + "7,u,v,1,1,1,X,2020-06-09 18:41:01,,,5,0\n" * 2,
            r"line 3: the id of line 2 again \(got '7'\)",
        ),
        (SWF_ROW.format(1, 0, 5) + SWF_ROW.format(2, 3, -7), "line 2: a negative duration"),
        (SWF_ROW.format(1, 0, 5) + SWF_ROW.format(1, 3, 7), "line 2: the id of line 1 again"),
        (SWF_ROW.format(1, 0, 5) + "2 3 0 5 4\n", "line 2: 5 fields"),
        (
            SWF_ROW.format(1, 0, 5) + SWF_ROW.format(2, 3, "5").replace(" 5 4 ", " 5 1.5 "),
            r"line 2, allocated processors: must be a whole number \(got '1.5'",
        ),
        (TASK.format("1.0", "50.0") + TASK.format("1.0", "50.0"), "line 2, job_name: the task of line 1 again"),
        ("A3C\tc\tn\t0\t9\t0.0\t1\nB4D\tc\tn\t0\t9\t1.0\t1\n", "line 2, job_type: unknown job type"),
        ("A3C\tc\tn\t0\t9\t0.0\t1\nA3C\tc\tn\t0\t9\t1", "line 2: 6 fields"),
        ("j,t,1.0,Terminated,9.0,5.0,100.0,1.0,100.0,T4\nk,t,1.0,Terminated,1.0,5.0,100.0,1.0,100.0,T4\n", "line 1"),
        (TASK.format("1.0", "50.0") + TASK.format("-3", "50.0"), r"line 2, inst_num: must not be negative \(got '-3'"),
        (TASK.format("1.0", "50.0") + TASK.format("1.0", "-50"), "line 2, plan_gpu: must not be negative"),
        (OWN % '{"name": "a", "arrival_s": 1, "duration_s": 1}', "line 3: the id of line 2 again"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": -1}', "line 3: a negative duration"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "deadline_s": 0.5}', "line 3: the deadline lies before"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "kind": "tren"}', "line 3, kind: unknown kind"),
        (OWN % '{"name": "b", "arrival_s": 1, "dur', "line 3: not valid JSON"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1e300}', "line 3, duration_s: must be a finite number"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "priority": 1.5}', "line 3, priority: must be a whole"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "memory_gb": -1}', "line 3: memory_gb is negative"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "devices": 99999999}', "line 3: more than 10,000,000"),
        (OWN % "7", "line 3: is no job"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1e-300}', "line 3: a duration below 1e-06 s"),
        (
            OWN % '{"name": "b", "arrival_s": -50, "duration_s": 1}',
            r"line 3, arrival_s: must not be negative \(got '-50'",
        ),
        (
            OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "priority": 1000001}',
            "line 3, priority: must be a whole",
        ),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "model": "nonsense"}', "line 3, model: unknown model"),
        (LLM % '"tokens": 5', "line 3, tokens: of a job without a model"),
        (LLM % '"model": "gpt2", "least": 2', r"line 3, least: of a job without tokens \(got 2"),
        (LLM % '"model": "gpt2", "duration_s": 5, "batch": 2', "line 3, batch: of a job without tokens"),
        (LLM % '"model": "gpt5", "tokens": 5', "line 3, model: unknown model 'gpt5'"),
        (LLM % '"model": "gpt2", "tokens": 5, "least": 8, "most": 4', "line 3, least: more than its most, 4"),
        (LLM % '"model": "gpt2", "tokens": 5, "devices": 8, "most": 4', "line 3, devices: not its most, 4"),
        (LLM % '"model": "gpt2", "tokens": 5, "kind": "deploy"', "line 3, tokens: of a job of kind deploy"),
        (LLM % '"model": "gpt2", "tokens": 5, "seq": 2048', "line 3, seq: exceeds the 1024 learned positions of gpt2"),
        (LLM % '"model": "gpt2", "tokens": 1e17', "line 3, tokens: must be a number"),
        (LLM % '"model": "gpt2", "tokens": -1', "line 3, tokens: must not be negative"),
        (LLM % '"model": "gpt2", "tokens": 5, "batch": 1.5', "line 3, batch: must be a whole number"),
        (logged([{"ip": "m", "gpus": 5}]), "line 2, detail: tells no list of GPUs"),
        (logged([{"ip": "m", "gpus": "gpu0"}]), "line 2, detail: tells no list of GPUs"),
        (logged({"ip": "m"}), "line 2, detail: tells no list of GPUs"),
        (
            HEAD + GOOD + "2017-10-09T07:01:55Z,5,1,5,c\n",
            "line 3, timestamp: a time with an offset among times without",
        ),
        (HEAD + "2017-10-09T07:01:55-07:00,5,1,5,c\n" + GOOD, "line 3, timestamp: a time without an offset"),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 2e9}', r"line 3: a duration above 1e\+09 s"),
        (
            OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "data_gb": 1e12}',
            r"line 3: more than 1e\+09 GB of data",
        ),
        (HEAD + GOOD * 3 + GOOD.replace("2017", "1970"), r"line 5: arrives more than 1e\+09 s from the middle"),
        (
            HEAD + GOOD * CHUNK + "1507532515,5,1,5,c\n" * CHUNK,
            f"line {CHUNK + 2}, timestamp: must be a date and time",
        ),
        (
            HEAD + "1507532515,5,1,5,c\n" * CHUNK + GOOD * CHUNK,
            f"line {CHUNK + 2}, timestamp: must be a number",
        ),
        (HEAD + GOOD + "2017-10-09 07:01:55,1_000,1,5,c\n", r"line 3, duration: must be a number \(got '1_000'"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(reading: Reading, text: str, told: str):
    with pytest.raises(InputError, match=told) as caught:
        reading(text)
    assert "--skip-bad" in str(caught.value) or "CSV" in told


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (HEAD + GOOD + "2017-10-09 07:01:55,-66.0,1,66.0,11cb48\n" + GOOD, 2),
        (HEAD + GOOD + "2017-10-09 07:0", 1),
        (HEAD + "2017-10-09 07:01:55,sixty,1,66.0,11cb48\n" + GOOD, 1),
        (HELIOS + "7,u,v,1,1,1,X,2020-06-09 18:41:01,,,5,0\n" * 2, 1),
        (SWF_ROW.format(1, 0, 5) + "2 3 0 5 4\n", 1),
        ("A3C\tc\tn\t0\t9\t0.0\t1\nA3C\tc\tn\t0\t9\t1", 1),
        (OWN % '{"name": "b", "arrival_s": 1, "dur', 1),
        (OWN % '{"name": "a", "arrival_s": 1, "duration_s": 1}', 1),
        (logged([{"ip": "m", "gpus": 5}]), 1),
        (OWN % '{"name": "b", "arrival_s": 1, "duration_s": 1, "model": "nonsense"}', 1),
    ],
)
def test_the_rest_is_taken_where_wrong_rows_are_passed_over(reading: Reading, text: str, left: int):
    trace = reading(text, skip_bad=True)
    assert len(trace.workload) == left
    assert sum(trace.passed.values()) == 1
    assert "wrong row" in trace.remarks[-1]


@pytest.mark.parametrize(
    "text",
    [
        HELIOS + "".join(f"{name},u,v,1,1,1,X,2020-06-09 18:41:01,,,5,0\n" for name in "778899"),
        OWN % ",\n".join(f'{{"name": "{name}", "arrival_s": 1, "duration_s": 1}}' for name in "abbccdd"),
    ],
)
def test_rows_that_stand_twice_are_counted_under_one_reason(reading: Reading, text: str):
    assert sum(reading(text, skip_bad=True).passed.values()) > 2
    assert list(reading(text, skip_bad=True).passed) == ["wrong row: an id that stands twice"]


def test_a_task_that_stands_twice_does_not_double_its_job(reading: Reading):
    row = TASK.format("2", "100.0")
    trace = reading(row + row.replace("worker", "ps") + row.replace("200.0", "250.0", 1) + row, skip_bad=True)
    assert list(trace.workload.devices) == [6]  # another task and another run of the first are no repetitions
    assert trace.passed == {"wrong row: a task again": 1}


def test_a_wrong_task_is_not_netted_against_the_others_of_its_job(reading: Reading):
    trace = reading(TASK.format("-3", "100.0") + TASK.format("5", "100.0"), skip_bad=True)
    assert list(trace.workload.devices) == [5]
    assert trace.passed == {"wrong row: must not be negative": 1}


def test_missing_values_are_passed_over_and_counted(reading: Reading):
    rows = ["NA,66,1,66,c", "2017-10-09 07:01:55,,1,66,c", "2017-10-09 07:01:55,5,None,66,c"]
    trace = reading(HEAD + GOOD + "\n".join(rows) + "\n\n2017-10-09 07:01:55,5,0,0,c\n")
    assert len(trace.workload) == 1
    assert trace.passed == {
        "no time of submission": 1,
        "never ran": 1,
        "no number of devices": 1,
        "asks for no device": 1,
    }


@pytest.mark.parametrize(
    "text",
    [
        "name,arrival_s,duration_s,devices\na,0,1,2\nb,1,1,nan\nc,2,1,\n",
        OWN.replace('"duration_s": 1}', '"duration_s": 1, "devices": 2}')
        % ",\n".join(
            '{{"name": "{}", "arrival_s": 1, "duration_s": 1, "devices": {}}}'.format(*each)
            for each in (("b", '"nan"'), ("c", "null"))
        ),
    ],
)
def test_jobs_without_a_number_of_devices_are_passed_over(reading: Reading, text: str):
    trace = reading(text)
    assert list(trace.workload.devices) == [2]
    assert trace.passed == {"no number of devices": 2}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the trace is empty"),
        (b" \n\n", "the trace is empty"),
        (HEAD.encode(), "holds no rows"),
        (HEAD.encode("utf-16"), "not UTF-8"),
        ("timestamp;dauer für\n".encode("latin-1"), "not UTF-8"),
        (gzip.compress(HEAD.encode() * 50, mtime=0)[:-20], "cannot unpack"),
        (b"\x1f\x8bnot gzip at all", "cannot unpack"),
        (gzip.compress(HEAD.encode() * 50, mtime=0)[:10] + b"\xff" * 40, "cannot unpack"),
        (b"a,b,c\n1,2,3\n", "in no format that is known"),
        ((HEAD + GOOD).replace(",", ";").encode(), "its fields are parted by semicolons"),
        ((HEAD + GOOD).replace(",", "\t").encode(), "its fields are parted by tabs"),
        (packed(HEAD + GOOD), "is a tar archive"),
        (gzip.compress(packed(HEAD + GOOD), mtime=0), "is a tar archive"),
        (b"[]", "in no format that is known"),
        (b'{"hippo_jobs": 1}', "no list of jobs"),
        (b'{"hippo_jobs": 1, "jobs": []}', "no job is left"),
        (b'{"hippo_jobs": 1, "jobs": 5}', "is no JSON list"),
        (b'{"hippo_jobs": 1, "jobs"', "is no JSON list"),
        (b"arrival_s,duration_s,devcies\n1,2,3\n", "unknown field of a job 'devcies'"),
        (b"arrival_s,duration_s,duration_s\n1,2,3\n", "two columns of one name"),
    ],
)
def test_files_that_are_no_trace(reading: Reading, content: bytes, told: str):
    with pytest.raises(InputError, match=told):
        reading(content)


def test_paths_that_lead_nowhere(tmp_path: Path):
    with pytest.raises(InputError, match="does not exist"):
        load_trace(tmp_path / "no.csv")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no plain file"):
        load_trace(tmp_path / "pipe")
    with pytest.raises(InputError, match="holds no pai_task_table"):
        load_trace(tmp_path)
    with pytest.raises(InputError, match="is a folder"):
        load_trace(tmp_path, form="swf")


def test_a_format_that_does_not_fit(reading: Reading):
    with pytest.raises(InputError, match=r"looks like format philly \(CSV\) \(got 'helios'\)"):
        reading(HEAD + GOOD, form="helios")
    with pytest.raises(InputError, match="the header lacks job_id, gpu_num, submit_time"):
        reading("job,gpus\n1,2\n", form="helios")
    with pytest.raises(InputError, match="fields"):
        reading("job,gpus\n1,2\n", form="gavel")
    with pytest.raises(InputError, match="unknown format 'phily'"):
        reading(HEAD + GOOD, form="phily")


@pytest.mark.parametrize(
    "table",
    [
        "j1,i1,alice,Terminated,90.0,160.0\n",
        "j1,worker,a,b,i1,Terminated,90.0,160.0,m1\n",
        "job_name,task_name,inst_name,worker_name,inst_id,status,start_time,end_time,machine\nj1,t,a,b,c,Failed,,,m\n",
    ],
)
def test_other_tables_of_pai_alone_have_no_sizes(reading: Reading, table: str):
    with pytest.raises(InputError, match="holds no sizes"):
        reading(table)
