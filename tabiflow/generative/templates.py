"""Prompts in our own wording, one for each task of CETVEL, so that it can be run out of the box.

They are not the benchmark's: a score made with them cannot stand beside a published one, and says
so. A checkout of the benchmark's repository brings its own (`tabiflow.generative.checkout`).

`lettered` is the row's options with their letters, a line each. A prompt ends without white space:
what follows brings its own.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tabiflow.spec import Generation


@dataclass(frozen=True)
class Template:
    """How a row becomes a prompt and what may follow it."""

    prompt: str
    """In the language of `sandbox`, over the row's fields and `lettered`."""
    continuations: str | tuple[str, ...] | None = None
    """What is scored in place of the options: an expression for a list, or the same for every row.
    None is the options themselves or, where letters answer, the letters."""
    delimiter: str = " "
    """Between the prompt and what follows."""
    marks: tuple[str, ...] = ()
    """What a written answer calls the options; empty for letters."""
    anywhere: bool = False
    """A written answer's mark may stand inside a word: the repository's reading, not ours."""
    generation: Generation | None = None
    """None keeps the task's."""
    origin: str = "tabiflow"
    comparable: bool = False
    """Whether the wording is the benchmark's own."""

    @property
    def hash(self) -> str:
        """Of all that decides what a model is asked."""
        content = asdict(self) | {"generation": self.generation and self.generation.model_dump()}
        meaning = {name: content[name] for name in sorted(content) if name not in _ABOUT}
        text = json.dumps(meaning, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_ABOUT = ("origin", "comparable")

_READING = Template(
    "Metni okuyun ve soruyu metinden alınan kısa bir ifadeyle yanıtlayın.\n\n"
    "Metin: {{ context }}\n\nSoru: {{ question }}\nYanıt:"
)
_SUMMARY = "Aşağıdaki {} birkaç cümleyle özetleyin.\n\n{}{{{{ {} }}}}\n\nKısa özet:"
_HEADED = Template(_SUMMARY.format("haberi", "Haber başlığı: {{ title }}\nHaber: ", "text"))
_INFERENCE = Template(
    "Önerme: {{ premise }}\nVarsayım: {{ hypothesis }}\n"
    "Önerme doğruysa varsayım için ne söylenebilir? Varsayım",
    continuations=("kesinlikle doğrudur", "doğru da olabilir yanlış da", "kesinlikle yanlıştır"),
)
_YES_NO = ("hayır", "evet")

TEMPLATES: Mapping[str, Template] = {
    "xquad_tr": _READING,
    "tquad": _READING,
    "mkqa_tr": Template(
        "Soruyu tek bir ad, sayı ya da kısa ifadeyle yanıtlayın.\n\nSoru: {{ query }}\nYanıt:"
    ),
    "xcopa_tr": Template(
        "{{ premise.strip() }} "
        "{{ 'Bunun nedeni şudur:' if question == 'cause' else 'Bunun sonucunda şu oldu:' }}"
    ),
    "turkish_plu_goal_inference": Template(
        "Birisi şunu yapıyor: {{ sent2 }}\nBu adım hangi işin bir parçasıdır?\nYapılan iş:"
    ),
    "turkish_plu_next_event_prediction": Template(
        "Yapılan iş: {{ sent1 }}\nAz önce atılan adım: {{ sent2 }}\nBundan sonra atılacak adım:"
    ),
    "turkish_plu_step_inference": Template(
        "Yapılmak istenen: {{ sent2 }}\nBunun için atılacak adımlardan biri:"
    ),
    "turkish_plu_step_ordering": Template(
        "Yapılmak istenen: {{ sent2 }}\nAdımların doğru sırası:",
        continuations=(
            "['ilk adım “' ~ ending0 ~ '”, ikinci adım “' ~ ending1 ~ '”',"
            " 'ilk adım “' ~ ending1 ~ '”, ikinci adım “' ~ ending0 ~ '”']"
        ),
    ),
    "exams_tr": Template("Sınav sorusu: {{ question.stem }}\nDoğru yanıt:"),
    "belebele_tr": Template(
        "Parça:\n{{ flores_passage }}\n\nParçaya göre yanıtlayın: {{ question.strip() }}\n"
        "{{ lettered }}\nDoğru seçeneğin harfi:"
    ),
    "turkce_atasozleri": Template(
        "“{{ question }}” atasözünü en iyi açıklayan seçenek hangisidir?\n{{ lettered }}\n"
        "Yalnızca doğru seçeneğin harfini yazın.\nHarf:"
    ),
    "turkishmmlu": Template("{{ question.strip() }}\n{{ lettered }}\nDoğru seçeneğin harfi:"),
    "bilmecebench": Template(
        "Bilin bakalım: {{ riddle }}\n{{ lettered }}\n"
        "Yalnızca doğru seçeneğin harfini yazın.\nHarf:"
    ),
    "circumflex_tr": Template(
        "“{{ word }}” sözcüğü, düzeltme işaretine dikkat edilirse, ne demektir?\n"
        "{{ lettered }}\nDoğru seçeneğin harfi:"
    ),
    "sts_tr": Template(
        "Birinci cümle: {{ sentence1 }}\nİkinci cümle: {{ sentence2 }}\n"
        "Bu iki cümlenin anlam yakınlığı:",
        continuations=("yok", "çok az", "az", "orta", "yüksek", "tam"),
    ),
    "offenseval_tr": Template(
        "İleti: {{ tweet }}\nBu iletide birine yönelik hakaret ya da kaba söz var mı?\nYanıt:",
        continuations=_YES_NO,
    ),
    "news_cat": Template(
        "Haber metni: {{ text }}\nBu haber gazetenin hangi sayfasında yer alır?\nSayfa:",
        continuations=("spor", "magazin", "siyaset", "sağlık", "ekonomi"),
    ),
    "ironytr": Template(
        "İleti: {{ text }}\nYazan kişi söylediğinin tersini mi kastediyor?\nYanıt:",
        continuations=_YES_NO,
    ),
    "mnli_tr": _INFERENCE,
    "snli_tr": _INFERENCE,
    "xnli_tr": _INFERENCE,
    "xlsum_tr": _HEADED,
    "mlsum_tr": _HEADED,
    "wiki_lingua_tr": Template(_SUMMARY.format("yönergeyi", "Yönerge: ", "source")),
    "tr-wikihow-summ": Template(_SUMMARY.format("yönergeyi", "Yönerge: ", "text")),
    "wmt-tr-en-prompt": Template(
        "İngilizce cümleyi Türkçeye çevirin.\n\nİngilizce: {{ translation.en }}\nTürkçe:"
    ),
    "gecturk_generation": Template(
        "Aşağıdaki cümlede yazım yanlışları olabilir. Cümleyi yalnızca yanlışlarını düzelterek "
        "yeniden yazın.\n\nCümle: {{ source }}\nDoğru yazımı:"
    ),
}
