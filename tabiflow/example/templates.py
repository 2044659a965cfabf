"""One maker for each kind of task: random numbers in, a few Turkish rows out.

The answers follow from words and word forms, so that an encoder with random weights can learn them
in seconds; each kind has cases (contrast, negation, homographs, distractors, unseen names) that
keep a score from being perfect.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tabiflow.example.turkish import capital, suffixed, upper
from tabiflow.spec import TaskKind

Row = dict[str, Any]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split("|"))


FIRST_NAMES = _words(
    "Ayşe|Mehmet|Işıl|İbrahim|Zeynep|Mustafa|İrem|Emre|Elif|Kerem|Irmak|Selim|Gülşen|Ömer|Çağla|"
    "Orhan|İpek|Şule|Yusuf|Derya|Deniz|Umut|Sevgi|Barış|Ilgın|İsmail|Hatice|Tarık|Nermin|Okan|"
    "Pınar|Rıza|Suna|Tülin|Uğur|Vedat|Yeliz|Zafer|Cemre|Bülent"
)
SURNAMES = _words(
    "Yılmaz|Kaya|Demir|Şahin|Çelik|Işık|İnan|Öztürk|Aydın|Koç|Ilgaz|Arslan|Doğan|Kılıç|Çetin|Kara|"
    "Özkan|Şimşek|Polat|Korkmaz|Irmak|Toprak|Güneş|Bulut"
)
CITIES = _words(
    "İstanbul|Ankara|İzmir|Iğdır|Isparta|Bursa|Van|Trabzon|Konya|Mersin|Edirne|Sivas|Aydın|Ordu|"
    "Kars|Rize|Muğla|Bolu|Urfa|Samsun"
)
COMPANIES = _words(
    "Işıklar|İpekyolu|Anadolu|Marmara|Ege|Toros|Yıldız|Karadeniz|Fırat|Irmak|Boğaziçi|Güneş|Kaya"
)
SECTORS = ("Bankası", "Holding", "Üniversitesi", "Vakfı", "Havayolları", "Kulübü")


# Classification: the sentiment of a review. After `ama` only the second half counts.

SUBJECTS = _words(
    "kargo|ürün|satıcı|paketleme|kumaş|ekran|batarya|kamera|ses kalitesi|ışık ayarı|iplik|kutu|"
    "ısıtıcı|saat|kulaklık|içindekiler|renk|beden|servis|fiyat"
)
PREDICATES: Mapping[str, tuple[str, ...]] = {
    "olumlu": _words(
        "harika|çok güzel|mükemmel|beklediğimden iyi|tam istediğim gibi|çok hızlı|ışıl ışıl|"
        "kusursuz|hiç kötü değil|gayet başarılı"
    ),
    "olumsuz": _words(
        "berbat|çok kötü|rezalet|beklediğimden kötü|ıslak geldi|bozuk çıktı|çok yavaş|kırık geldi|"
        "hiç iyi değil|tam bir hayal kırıklığı"
    ),
    "tarafsız": _words(
        "fena değil|idare eder|ne iyi ne kötü|ortalama|sıradan|eh işte|beklediğim kadar|"
        "alışılmış türden"
    ),
}
CLOSINGS: Mapping[str, tuple[str, ...]] = {
    "olumlu": ("beğendim", "öneririm", "memnun kaldım", "teşekkürler", "yine alırım"),
    "olumsuz": ("beğenmedim", "önermem", "memnun kalmadım", "iade ettim", "bir daha almam"),
    "tarafsız": ("kararsızım", "karar sizin", "almasanız da olur", "alınabilir"),
}


def _review(pick: Random) -> list[Row]:
    label = pick.choice(list(PREDICATES))
    text = f"{pick.choice(SUBJECTS)} {pick.choice(PREDICATES[label])}"
    if pick.random() < 0.35:
        other = pick.choice([each for each in PREDICATES if each != label])
        text = f"{pick.choice(SUBJECTS)} {pick.choice(PREDICATES[other])} ama {text}"
    if pick.random() < 0.4:
        text += f", {pick.choice(CLOSINGS[label])}"
    text = upper(text) if pick.random() < 0.25 else capital(text)
    return [{"text": text + pick.choice((".", "!", "")), "label": label}]


# NLI: what a sentence says of somebody, less of it, more than it, or its opposite.

PEOPLE: Mapping[str, str] = {
    "bir kadın": "bir insan",
    "bir adam": "bir insan",
    "yaşlı bir kadın": "bir kadın",
    "yaşlı bir adam": "bir adam",
    "küçük bir kız": "bir çocuk",
    "küçük bir oğlan": "bir çocuk",
    "ıslanmış bir kız": "bir kız",
    "işçi bir genç": "bir genç",
}
PLACES = ("parkta", "sahilde", "ırmak kıyısında", "istasyonda", "okulda", "bahçede", "ıssız yolda")
ACTIONS: Mapping[str, str] = {
    "koşuyor": "koşmuyor",
    "şarkı söylüyor": "şarkı söylemiyor",
    "kitap okuyor": "kitap okumuyor",
    "top oynuyor": "top oynamıyor",
    "resim çiziyor": "resim çizmiyor",
    "çay içiyor": "çay içmiyor",
    "yürüyor": "yürümüyor",
    "ıslık çalıyor": "ıslık çalmıyor",
}
GUESSES = ("arkadaşı için", "yarış için", "eğlenmek için", "her sabah", "para için", "üzgün üzgün")


def _inference(pick: Random) -> list[Row]:
    who, where, what = (pick.choice(list(each)) for each in (PEOPLE, PLACES, ACTIONS))
    denied = pick.random() < 0.2
    said, opposite = (ACTIONS[what], what) if denied else (what, ACTIONS[what])
    label = pick.choice(("entailment", "neutral", "contradiction"))
    hypothesis = {
        "entailment": pick.choice((f"{PEOPLE[who]} {said}", f"{PEOPLE[who]} {where} {said}")),
        "neutral": f"{pick.choice((who, PEOPLE[who]))} {pick.choice(GUESSES)} {said}",
        "contradiction": pick.choice((f"{who} {opposite}", f"{where} kimse yok")),
    }[label]
    premise = capital(f"{who} {where} {said}.")
    return [{"premise": premise, "hypothesis": capital(hypothesis) + ".", "label": label}]


# Tagging. A template's word in capitals is a slot; what follows `+` is its suffix.

NEWS = _words(
    "PER dün LOC+DA bir konuşma yaptı .|PER ORG+DA çalışıyor .|ORG yeni binasını LOC+DA açtı .|"
    "LOC sokakları bu sabah ıslaktı .|ORG , PER+yI müdür seçti .|PER ve PER LOC+DAn döndü .|"
    "Irmak taştı , LOC+DA okullar kapandı .|Işık söndü , PER korktu .|Güneş doğdu , LOC uyandı .|"
    "Açıklamayı ORG adına PER okudu .|Geçen yaz LOC ile LOC arasında yol yapıldı .|"
    "Deniz dalgalıydı , kimse LOC+DA yüzmedi .|Toprak kurudu , ORG yardım istedi .|"
    "İşçiler ORG önünde toplandı .|Kaya düştü , LOC yolu kapandı ."
)


def _entity(pick: Random, kind: str) -> str:
    if kind == "PER":
        name = pick.choice(FIRST_NAMES)
        return f"{name} {pick.choice(SURNAMES)}" if pick.random() < 0.7 else name
    if kind == "ORG":
        return f"{pick.choice(COMPANIES)} {pick.choice(SECTORS)}"
    return pick.choice(CITIES)


def _news(pick: Random) -> list[Row]:
    tokens: list[str] = []
    tags: list[str] = []
    for word in pick.choice(NEWS).split():
        slot, _, suffix = word.partition("+")
        if slot not in ("PER", "LOC", "ORG"):
            tokens.append(word)
            tags.append("O")
            continue
        name = _entity(pick, slot)
        # The buffer letter of `-yI` stands after vowels only.
        suffix = suffix if name[-1] in "aıoueiöü" else suffix.removeprefix("y")
        tokens += (suffixed(name, suffix, "'") if suffix else name).split()
        tags += [f"B-{slot}", *[f"I-{slot}"] * (len(name.split()) - 1)]
    return [{"tokens": tokens, "tags": tags}]


WORDS: Mapping[str, tuple[str, ...]] = {
    "NOUN": _words(
        "gül|yaz|yüz|kız|at|ev|kitap|iş|araba|kedi|dal|kar|ekmek|ada|çay|deniz|ırmak|umut|barış|"
        "bahar|yağmur|ışık|güneş|kaya"
    ),
    "OBJECT": _words("gülü|yüzü|kızı|atı|evi|kitabı|ışığı|işi|arabayı|kediyi|dalı|ekmeği|çayı"),
    "VERB": _words("geldi|güldü|yüzdü|yazdı|kızdı|düştü|kaldı|ısındı|işledi|açtı|gördü|aldı|sattı"),
    "ORDER": _words("gül|yaz|yüz|kız|gel|al|sat|aç|ısın|işle|dal"),
    "ADJ": _words("güzel|hızlı|iyi|kötü|ıslak|ince|yeni|eski|doğru|sessiz"),
    "ADV": _words("güzel|hızlı|iyi|kötü|doğru|sessiz|dün|hemen|yine|ısrarla|içten"),
    "DET": _words("bu|o|bir|her|şu"),
    "PRON": _words("bu|o|ben|biz|kimse|şu"),
    "NUM": _words("bir|iki|yüz|on|altı|kırk"),
    "PROPN": _words(
        "Ayşe|İbrahim|Zeynep|Mustafa|Işıl|Emre|Elif|Selim|Gül|Deniz|Irmak|Umut|Barış|Bahar|Yağmur|"
        "Işık|Güneş|Kaya"
    ),
    "CCONJ": _words("ve|ile|ama"),
    "ADP": _words("ile|için|gibi"),
    "INTJ": _words("haydi|eyvah|ah"),
}
CLAUSES = _words(
    "DET ADJ NOUN ADV VERB .|PRON ADV VERB .|NUM NOUN VERB .|PROPN OBJECT ADV VERB .|"
    "PRON OBJECT VERB .|INTJ ADV ORDER !|PROPN ADP ORDER !|ADJ NOUN CCONJ ADJ NOUN VERB .|"
    "DET NOUN PROPN ADP VERB .|NUM ADJ NOUN CCONJ NUM NOUN VERB .|PROPN , OBJECT ORDER !|"
    "PROPN CCONJ PROPN ADV VERB .|DET NOUN ADJ , PRON ADJ .|NOUN ADV VERB .|"
    "PROPN VERB , NOUN VERB .|DET PROPN ADV VERB .|NOUN CCONJ PROPN OBJECT VERB ."
)
TAGS: Mapping[str, str] = {"OBJECT": "NOUN", "ORDER": "VERB"}


def _clause(pick: Random) -> list[Row]:
    slots = pick.choice(CLAUSES).split()
    tokens = [pick.choice(WORDS[slot]) if slot in WORDS else slot for slot in slots]
    tags = [TAGS.get(slot, slot) if slot in WORDS else "PUNCT" for slot in slots]
    return [{"tokens": [capital(tokens[0]), *tokens[1:]], "tags": tags}]


# Similarity: details that differ cost a little, a negated verb half, another topic everything.

ACTORS = _words("aşçı|kaleci|şarkıcı|çırak|ihtiyar kadın|ıslık çalan kız")
MANNERS = _words("evde|sahnede|sokakta|ırmakta")
DEEDS: Mapping[str, str] = {
    "çalışıyor": "çalışmıyor",
    "dinleniyor": "dinlenmiyor",
    "bekliyor": "beklemiyor",
    "ısınıyor": "ısınmıyor",
}
ELSEWHERE = _words(
    "borsa dün düştü|faizler yine arttı|yarın kar yağacak|rüzgâr akşam dinecek|altın pahalandı|"
    "sis öğlene kadar kalkacak|ihracat bu yıl azaldı|sıcaklık hızla yükselecek"
)


def _similarity(pick: Random) -> list[Row]:
    first = [pick.choice(list(words)) for words in (ACTORS, MANNERS, DEEDS)]
    second = [pick.choice(ACTORS), pick.choice(MANNERS), first[2]]
    second = [old if pick.random() < 0.6 else new for old, new in zip(first, second, strict=True)]
    score = 3.0 + sum(one == two for one, two in zip(first[:2], second[:2], strict=True))
    fate = pick.random()
    if fate < 0.3:
        second, score = [*second[:2], DEEDS[first[2]]], score - 2.0
    elif fate < 0.65:
        second, score = [pick.choice(ELSEWHERE)], 0.0
    one, two = (capital(" ".join(words)) + "." for words in (first, second))
    return [{"sentence1": one, "sentence2": two, "score": score}]


# QA: the question words name the kind of answer; the context holds one of each, or two.

SELLERS = _words("Ayşe|Mehmet|Işıl|İbrahim|Zeynep|Mustafa|İrem|Emre|Irmak|Selim|Ömer|İpek")
MARKETS = _words("İstanbul|Ankara|İzmir|Iğdır|Isparta|Bursa|Van|Trabzon|Konya|Mersin")
YEARS = _words("1954|1961|1968|1975|1982|1989|1996|2003|2010|2017")
NUMBERS = _words("iki|üç|beş|altı|yedi|sekiz|kırk|yüz")
GOODS = _words("at|kitap|halı|ışıldak|saat|koyun")
ASKED: Mapping[str, tuple[str, ...]] = {
    "who": ("GOODS satan kişi kim?", "Kim GOODS sattı, satan kişi kimdi?"),
    "when": ("Hangi yılda GOODS sattı?", "Ne zaman, hangi yılda GOODS sattı?"),
    "where": ("Hangi şehirde GOODS sattı?", "Nerede, hangi şehirde GOODS sattı?"),
    "many": ("Kaç tane GOODS sattı?", "Ne kadar, kaç tane GOODS sattı?"),
}


def _question(pick: Random) -> list[Row]:
    goods = pick.sample(GOODS, 2 if pick.random() < 0.2 else 1)
    sales = [_sale(pick) for _ in goods]
    told = [_told(pick, sale, what) for sale, what in zip(sales, goods, strict=True)]
    about = pick.randrange(len(goods))
    asked = pick.choice(list(ASKED))
    answer = sales[about][asked]
    start = len("".join(f"{sentence} " for sentence in told[:about])) + told[about].index(answer)
    return [
        {
            "context": " ".join(told),
            "question": _filled(pick.choice(ASKED[asked]), {"GOODS": goods[about]}),
            "answers": {"text": [answer], "answer_start": [start]},
        }
    ]


def _sale(pick: Random) -> dict[str, str]:
    return {
        "who": pick.choice(SELLERS),
        "when": pick.choice(YEARS),
        "where": pick.choice(MARKETS),
        "many": pick.choice(NUMBERS),
    }


def _told(pick: Random, sale: Mapping[str, str], what: str) -> str:
    parts = [sale["who"], f"{sale['when']} yılında", suffixed(sale["where"], "DA", "'")]
    pick.shuffle(parts)
    return f"{' '.join(parts)} {sale['many']} {what} sattı."


# Retrieval: a question and the passage that shares its place and thing; some have two passages.

CROPS = _words(
    "fındık|ısırgan|incir|kayısı|pamuk|çay|zeytin|ıspanak|üzüm|şeftali|buğday|kestane|nar|erik|"
    "karpuz|mısır|pirinç|gül"
)
MONTHS = _words("Mayıs|Haziran|Temmuz|Ağustos|Eylül|Ekim")
PASSAGES = _words(
    "CITY çevresinde yetişen CROP her yıl MONTH ayında toplanır.|"
    "CROP hasadı bu yıl CITY köylerinde MONTH başında bitti.|"
    "Pazarda satılan CROP çoğunlukla CITY bahçelerinden MONTH sonunda gelir.|"
    "CITY tüccarları MONTH boyunca depolarda CROP biriktirir."
)
QUERIES = _words(
    "CITY ilinde CROP ne zaman toplanır?|CITY için CROP mevsimi hangi ay?|CROP en çok ne zaman CITY"
    " pazarına gelir?"
)


def _passages(pick: Random) -> list[Row]:
    filling = {
        "CITY": pick.choice(CITIES),
        "CROP": pick.choice(CROPS),
        "MONTH": pick.choice(MONTHS),
    }
    templates = pick.sample(PASSAGES, 2 if pick.random() < 0.15 else 1)
    query = _filled(pick.choice(QUERIES), filling)
    return [{"anchor": query, "positive": _filled(each, filling)} for each in templates]


def _filled(template: str, filling: Mapping[str, str]) -> str:
    for slot, word in filling.items():
        template = template.replace(slot, word)
    return capital(template)


MAKERS: Mapping[TaskKind, Callable[[Random], list[Row]]] = {
    "classification": _review,
    "nli": _inference,
    "ner": _news,
    "pos": _clause,
    "sts": _similarity,
    "qa": _question,
    "retrieval": _passages,
}
"""Each gives the rows that belong together: they go to the same split."""
